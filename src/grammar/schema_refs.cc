#include "grammar/schema_refs.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

namespace deepinfer {
namespace {

constexpr std::string_view kSingle[] = {"additionalProperties",
                                        "items",
                                        "additionalItems",
                                        "contains",
                                        "propertyNames",
                                        "not",
                                        "if",
                                        "then",
                                        "else",
                                        "unevaluatedProperties",
                                        "unevaluatedItems",
                                        "contentSchema"};
constexpr std::string_view kLists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::string_view kMaps[] = {"properties",  "patternProperties", "$defs",
                                      "definitions", "dependentSchemas",  "dependencies"};

size_t scheme_end(std::string_view uri) {
  for (size_t i = 0; i < uri.size(); ++i) {
    const char c = uri[i];
    if (c == ':') return i;
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
          (i > 0 && ((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'))))
      break;
  }
  return 0;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> parts;
  size_t at = 0;
  while (at <= path.size()) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    const bool last = end == path.size();
    if (part == "..") {
      if (parts.size() > 1) parts.pop_back();
      if (last) parts.push_back("");
    } else if (part == ".") {
      if (last) parts.push_back("");
    } else {
      parts.push_back(part);
    }
    at = end + 1;
  }
  return fmt::format("{}", fmt::join(parts, "/"));
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() + 0 &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

const Json* at_pointer(const Json* at, std::string_view pointer) {
  while (!pointer.empty() && at) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    std::string token(pointer.substr(0, end));
    pointer.remove_prefix(end);
    for (size_t i = 0; (i = token.find('~', i)) != std::string::npos; ++i) {
      if (i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1'))
        token.replace(i, 2, token[i + 1] == '1' ? "/" : "~");
    }
    if (at->is_array()) {
      size_t index = 0;
      const auto read = std::from_chars(token.data(), token.data() + token.size(), index);
      if (read.ptr != token.data() + token.size() || token.empty() || index >= at->size()) return nullptr;
      at = &at->items()[index];
    } else {
      at = at->find(token);
    }
  }
  return at;
}

}  // namespace

SchemaDraft schema_draft(const Json& schema) {
  const Json& given = schema.at("$schema");
  const std::string_view text = given.is_string() ? std::string_view(given.as_string()) : std::string_view();
  if (text.find("draft-04") != text.npos || text.find("draft-03") != text.npos) return SchemaDraft::kDraft4;
  if (text.find("draft-06") != text.npos) return SchemaDraft::kDraft6;
  if (text.find("draft-07") != text.npos) return SchemaDraft::kDraft7;
  if (text.find("2019-09") != text.npos) return SchemaDraft::k2019;
  return SchemaDraft::k2020;
}

std::string resolve_uri(std::string_view base, std::string_view reference) {
  if (const size_t scheme = scheme_end(reference); scheme > 0) {
    const std::string_view rest = reference.substr(scheme + 1);
    const size_t path = rest.substr(0, 2) == "//" ? rest.find('/', 2) : rest.npos;
    if (path == rest.npos) return std::string(reference);
    const size_t end = std::min(rest.find_first_of("?#", path), rest.size());
    return std::string(reference.substr(0, scheme + 1 + path)) + without_dots(rest.substr(path, end - path)) +
           std::string(rest.substr(end));
  }
  if (reference.empty()) return std::string(base);
  if (reference[0] == '#') return std::string(base.substr(0, base.find('#'))) + std::string(reference);
  base = base.substr(0, base.find_first_of("?#"));
  const size_t scheme = scheme_end(base);
  size_t root = scheme > 0 ? scheme + 1 : 0;
  if (base.substr(root, 2) == "//") root = std::min(base.find('/', root + 2), base.size());
  if (reference.substr(0, 2) == "//") return std::string(base.substr(0, scheme + 1)) + std::string(reference);
  const size_t tail = std::min(reference.find_first_of("?#"), reference.size());
  std::string path;
  if (reference[0] != '/') {
    const size_t slash = base.rfind('/');
    path = slash == base.npos || slash < root ? (root > 0 && root == base.size() ? "/" : "")
                                              : std::string(base.substr(root, slash + 1 - root));
  }
  path += reference.substr(0, tail);
  return std::string(base.substr(0, root)) + without_dots(path) + std::string(reference.substr(tail));
}

void SchemaRefs::index(const Json& root, SchemaDraft draft) {
  draft_ = draft;
  root_ = &root;
  resources_.emplace("", &root);
  visit(root, "");
}

void SchemaRefs::visit(const Json& schema, std::string base) {
  if (!schema.is_object()) return;
  const bool ref_alone = draft_ <= SchemaDraft::kDraft7 && schema.find("$ref") && schema.at("$ref").is_string();
  const Json* id = schema.find(draft_ == SchemaDraft::kDraft4 ? "id" : "$id");
  if (id && id->is_string() && !ref_alone) {
    const std::string full = resolve_uri(base, id->as_string());
    const size_t hash = full.find('#');
    if (hash != full.npos && hash + 1 < full.size()) {
      anchors_.emplace(full, &schema);
    } else {
      base = full.substr(0, hash);
      resources_.emplace(base, &schema);
    }
  }
  for (const char* word : {"$anchor", "$dynamicAnchor"}) {
    const Json& anchor = schema.at(word);
    if (anchor.is_string() && draft_ >= SchemaDraft::k2019) anchors_.emplace(base + "#" + anchor.as_string(), &schema);
  }
  bases_[&schema] = base;
  visit_children(schema, base);
}

void SchemaRefs::visit_children(const Json& schema, const std::string& base) {
  for (const std::string_view word : kSingle) {
    if (const Json* child = schema.find(word)) visit(*child, base);
  }
  for (const std::string_view word : kLists) {
    const Json& list = schema.at(word);
    if (!list.is_array()) continue;
    for (const Json& child : list.items()) visit(child, base);
  }
  for (const std::string_view word : kMaps) {
    const Json& map = schema.at(word);
    if (!map.is_object()) continue;
    for (const auto& [name, child] : map.members()) visit(child, base);
  }
}

Result<const Json*> SchemaRefs::resolve(const Json& from, std::string_view ref) const {
  const auto base = bases_.find(&from);
  const std::string full = resolve_uri(base == bases_.end() ? "" : base->second, ref);
  const size_t hash = full.find('#');
  const std::string address = full.substr(0, hash);
  const std::string fragment = hash == full.npos ? "" : percent_decoded(std::string_view(full).substr(hash + 1));
  const auto resource = resources_.find(address);
  const Json* found = nullptr;
  if (fragment.empty() || fragment[0] == '/') {
    if (resource != resources_.end()) found = at_pointer(resource->second, fragment);
  } else if (const auto anchor = anchors_.find(address + "#" + fragment); anchor != anchors_.end()) {
    found = anchor->second;
  }
  if (found) return found;
  return unsupported(fmt::format("'{}' is not in this document, and nothing is fetched", ref));
}

}  // namespace deepinfer
