#include "api/multipart.h"

#include <fmt/format.h>

namespace deepinfer {

namespace {

constexpr size_t kMaxParts = 64;

// The value of name="..." or name=... in a header value.
std::string parameter(std::string_view header, std::string_view name) {
  for (size_t at = header.find(';'); at != std::string_view::npos; at = header.find(';', at)) {
    at = header.find_first_not_of("; \t", at);
    if (at == std::string_view::npos) break;
    if (!header.substr(at).starts_with(name) || header.substr(at + name.size(), 1) != "=") continue;
    std::string_view value = header.substr(at + name.size() + 1);
    if (!value.starts_with('"')) return std::string(value.substr(0, value.find_first_of("; \t\r\n")));
    std::string out;
    for (size_t i = 1; i < value.size() && value[i] != '"'; ++i) {
      if (value[i] == '\\' && i + 1 < value.size()) ++i;
      out += value[i];
    }
    return out;
  }
  return "";
}

bool same_letters(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if ((a[i] | 0x20) != (b[i] | 0x20)) return false;
  }
  return true;
}

FormPart read_headers(std::string_view headers) {
  FormPart part;
  while (!headers.empty()) {
    const size_t end = std::min(headers.find("\r\n"), headers.size());
    const std::string_view line = headers.substr(0, end);
    headers = headers.substr(std::min(end + 2, headers.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !same_letters(line.substr(0, colon), "content-disposition")) continue;
    part.name = parameter(line, "name");
    part.filename = parameter(line, "filename");
  }
  return part;
}

}  // namespace

Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body) {
  const std::string boundary = parameter(content_type, "boundary");
  if (boundary.empty() || boundary.size() > 200)
    return invalid_argument("multipart/form-data needs a boundary in its Content-Type");
  const std::string first = "--" + boundary, next = "\r\n" + first;
  if (!body.starts_with(first)) return invalid_argument("the form does not begin with its boundary");
  body.remove_prefix(first.size());
  std::vector<FormPart> parts;
  while (!body.starts_with("--")) {
    const size_t head = body.find("\r\n\r\n"), line = body.find("\r\n");
    if (head == std::string_view::npos || line == std::string_view::npos)
      return invalid_argument("a part of the form has no end to its headers");
    if (parts.size() == kMaxParts) return invalid_argument(fmt::format("the form has more than {} parts", kMaxParts));
    FormPart part = read_headers(line < head ? body.substr(line + 2, head - line - 2) : std::string_view());
    body.remove_prefix(head + 4);
    const size_t end = body.find(next);
    if (end == std::string_view::npos) return invalid_argument("the form is cut off");
    part.content = body.substr(0, end);
    body.remove_prefix(end + next.size());
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace deepinfer
