#include "server/console.h"

namespace deepinfer {

namespace {

#include "server/console_page.inc"

}  // namespace

std::string_view console_page() { return {reinterpret_cast<const char*>(kPage), sizeof(kPage) - 1}; }
std::string_view console_etag() { return kPageTag; }

}  // namespace deepinfer
