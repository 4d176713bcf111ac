// server/console.h - the chat page: web/page/ as one file (tools/build_page), embedded at build time.
#pragma once

#include <string_view>

namespace deepinfer {

std::string_view console_page();
// Changes with the page.
std::string_view console_etag();

}  // namespace deepinfer
