// server/openapi.h - /openapi.json, made from the table of routes and the schemas beside it.
#pragma once

#include <string>

namespace deepinfer {

std::string openapi_text(const std::string& version);

}  // namespace deepinfer
