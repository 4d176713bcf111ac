// grammar/schema_refs.h - where $ref leads inside one schema document: base addresses, anchors, JSON pointers.
//
// Nothing is ever fetched: an address that is not in the document is an Error.
// Threads: const after index().
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

enum class SchemaDraft { kDraft4, kDraft6, kDraft7, k2019, k2020 };

// What `$schema` says; 2020-12 without one.
SchemaDraft schema_draft(const Json& schema);

class SchemaRefs {
 public:
  // `root` must outlive this.
  void index(const Json& root, SchemaDraft draft);
  // The schema that `ref` names when it stands in `from`.
  Result<const Json*> resolve(const Json& from, std::string_view ref) const;

 private:
  void visit(const Json& schema, std::string base);
  void visit_children(const Json& schema, const std::string& base);

  SchemaDraft draft_ = SchemaDraft::k2020;
  const Json* root_ = nullptr;
  std::unordered_map<const Json*, std::string> bases_;
  std::map<std::string, const Json*, std::less<>> resources_, anchors_;  // anchors by "address#name"
};

// `reference` seen from `base` (RFC 3986).
std::string resolve_uri(std::string_view base, std::string_view reference);

}  // namespace deepinfer
