// grammar/schema_reader.h - JSON Schema text becomes sets of values: drafts 4, 6, 7, 2019-09 and 2020-12.
//
// Each keyword is read by the function of its family and becomes atoms of the algebra; what has no exact meaning there is
// refused with keyword and path. Keywords that JSON Schema does not define, and annotations, constrain nothing.
// Threads: one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/schema_refs.h"
#include "grammar/schema_shapes.h"

namespace deepinfer {

struct SchemaOptions {
  // Known formats are enforced. The standard leaves that open; without it `format` is a note to the reader.
  bool assert_formats = true;
  // Of a schema without $schema. Then keywords of older drafts count, too, where the newest has none of that form.
  std::optional<SchemaDraft> draft;
};

// What becomes of a keyword; the table of the documentation is made from it.
struct SchemaKeyword {
  const char* name;
  enum class Use { kEnforced, kPartly, kRefused, kNote } use;
  const char* remark;
};
const std::vector<SchemaKeyword>& schema_keywords();
// Formats that are enforced with assert_formats.
const std::vector<const char*>& schema_formats();

class SchemaReader {
 public:
  SchemaReader(SchemaShapes& shapes, const SchemaOptions& options)
      : shapes_(shapes), algebra_(shapes.algebra()), arena_(shapes.arena()), options_(options) {}

  // `root` must outlive the reader.
  Result<SchemaId> read_document(const Json& root);
  // A keyword with where it first stood. `allOf` stands for all that combine schemas.
  std::string first_place(const std::string& keyword) const;

 private:
  // The keywords of one schema object as they are read: where it stands, and the parts so far, all of which must hold.
  struct Place {
    const Json& schema;
    const std::string& path;
    std::vector<SchemaId>& parts;
  };

  Result<SchemaId> read(const Json& schema, const std::string& path);
  Result<SchemaId> read_object(const Json& schema, const std::string& path);
  Status read_reference(const Place& at);
  Status read_combinations(const Place& at);
  Status read_condition(const Place& at);
  Status read_type(const Place& at);
  Status read_values(const Place& at);
  Status read_strings(const Place& at);
  Result<std::optional<Rx>> contents(const Place& at);
  Status read_numbers(const Place& at);
  Status read_bound(const Place& at, const char* word, const char* exclusive, bool is_low);
  Status read_objects(const Place& at);
  Status read_additional(const Place& at);
  Status read_dependencies(const Place& at, const char* word);
  Status read_items(const Place& at);
  Status read_contains(const Place& at);
  Status read_refused(const Place& at);
  Status read_unevaluated(const Place& at);

  Result<SchemaId> child(const Place& at, std::string_view word, const Json& schema);
  Result<std::vector<SchemaId>> children(const Place& at, std::string_view word, const Json& list);
  Result<SchemaId> type(const Place& at, const Json& name);
  SchemaId constant(const Json& value);
  SchemaId constants(const std::vector<Json>& values);
  SchemaId has_key(const std::string& name, SchemaId value = kAnyValue);
  // A count for minLength and the like; nothing where the keyword is missing.
  Result<std::optional<int64_t>> count(const Place& at, const char* word);
  Result<Rx> pattern(const Place& at, std::string_view word, const std::string& text);
  Rx outside(Rx text);
  // Keys that other keywords of the schema, or of those it always includes, have looked at; nothing when that depends on the
  // value.
  Result<std::vector<const Json*>> included_schemas(const Json& schema);
  Result<std::optional<Rx>> evaluated_keys(const Json& schema, const std::string& path, int depth);
  Result<std::optional<int64_t>> evaluated_items(const Json& schema, const std::string& path, int depth);
  static Error refuse(const std::string& path, std::string_view word, std::string_view why);
  static Error fault(const std::string& path, std::string_view word, std::string_view why);

  SchemaShapes& shapes_;
  SchemaAlgebra& algebra_;
  RegexArena& arena_;
  SchemaOptions options_;
  SchemaDraft draft_ = SchemaDraft::k2020;
  bool declared_ = false;  // the document says which draft it is
  SchemaRefs refs_;
  std::unordered_map<const Json*, SchemaId> known_;
  std::unordered_set<SchemaId> recursive_;  // names that were asked for before they had a meaning; others may be in it, too
  // propertyNames can be worked out only when all is read.
  struct Deferred {
    SchemaId name, names_schema;
  };
  std::vector<Deferred> deferred_;
  std::map<std::string, std::string> places_;
  std::map<std::string, std::optional<Rx>> formats_;
};

}  // namespace deepinfer
