// grammar/schema_shapes.h - what a schema says of each type, with and, or, not worked out.
//
// Strings and numbers: one language of texts each. Objects and arrays: a list of shapes of which at least one must hold; a
// shape is a plain conjunction of conditions on keys, items and counts. That one of several keys must be there with some value
// is one condition of an object's shape: not to be in an open object of ten properties is one shape and not ten, not to be in
// two of them one and not a hundred.
// Promise: exact or refused: when an expansion grows beyond its limit, or a $ref leads to itself at the same place,
// problem() says so and what was computed is not to be used.
// Threads: one thread at a time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/schema_algebra.h"

namespace deepinfer {

// null, false, true as bits; texts that strings decode to; texts of numbers.
struct Scalars {
  uint32_t types = 0;
  Rx text = kNothing, number = kNothing;
  bool integral = false;  // no number but integers, which are then written without a fraction
};

struct ObjectShape {
  struct Condition {
    KeySet keys;
    SchemaId value;
    bool operator==(const Condition&) const = default;
  };
  using Choice = std::vector<Condition>;  // at least one of them: some key of `keys` has its value in `value`
  std::vector<Condition> every;
  std::vector<Choice> some;
  int64_t min = 0, max = kUnbounded;
};

struct ArrayShape {
  struct Condition {
    int64_t low, high;
    SchemaId value;
    bool operator==(const Condition&) const = default;
  };
  std::vector<Condition> every, some;
  std::vector<Condition> counts;  // low..high items in `value`
  int64_t min = 0, max = kUnbounded;
  bool unique = false;
};

class SchemaShapes {
 public:
  // `strings`: what strings may be at all, a subset of any_text(); `free_body`: how one without conditions is written.
  SchemaShapes(SchemaAlgebra& algebra, RegexArena& arena, Rx strings, Rx free_body);

  const Scalars& scalars(SchemaId id);
  // Of the schema, or of its complement.
  const std::vector<ObjectShape>& objects(SchemaId id, bool negated = false);
  const std::vector<ArrayShape>& arrays(SchemaId id, bool negated = false);
  // Some value is in the schema.
  bool inhabited(SchemaId id);
  // What `shape` says of one key where it is not one of several that may meet a condition; what it says of one item.
  SchemaId value_of(const ObjectShape& shape, const std::string& name);
  SchemaId value_of(const ArrayShape& shape, int64_t index);
  // The names that conditions of `shape` speak of.
  std::set<std::string> names(const ObjectShape& shape) const;
  struct KeyClass {
    Rx text;
    SchemaId value;
  };
  // The keys with other names, by what is asked of their values. Values may be uninhabited.
  std::vector<KeyClass> other_keys(const ObjectShape& shape);

  Rx any_text() const { return any_text_; }
  Rx free_body() const { return free_body_; }
  // The texts of a language that strings may be.
  Rx within_strings(Rx text);
  Rx any_number() const { return any_number_; }
  SchemaAlgebra& algebra() { return algebra_; }
  RegexArena& arena() { return arena_; }
  // Empty, or why the results do not count.
  const std::string& problem() const { return problem_; }
  // The keyword to look for; may be empty.
  const std::string& problem_keyword() const { return problem_keyword_; }
  void fail_too_large() { fail("allOf", "the combination of its parts (allOf, anyOf, oneOf, not, if) grows too large"); }
  void fail(std::string keyword, std::string problem) {
    if (!problem_.empty()) return;
    problem_keyword_ = std::move(keyword);
    problem_ = std::move(problem);
  }

 private:
  using Kind = SchemaAlgebra::Kind;
  void count_step();
  Scalars work_out(SchemaId id);
  Scalars of_atom(const SchemaAtom& atom);
  Scalars joined(const Scalars& a, const Scalars& b, bool is_and);
  Scalars complement(const Scalars& a);
  template <class Shape>
  std::vector<Shape> expand(SchemaId id, bool negated);
  template <class Shape>
  std::vector<Shape> one_of(const std::vector<SchemaId>& parts, bool negated);
  template <class Shape>
  const std::vector<Shape>& shapes(SchemaId id, bool negated);
  template <class Shape>
  std::vector<Shape> product(const std::vector<Shape>& a, const std::vector<Shape>& b);
  void atom_shapes(const SchemaAtom& atom, bool negated, std::vector<ObjectShape>& out);
  void atom_shapes(const SchemaAtom& atom, bool negated, std::vector<ArrayShape>& out);
  // May leave out what cannot be of the conditions.
  bool surely_empty(ObjectShape& shape);
  bool surely_empty(const ArrayShape& shape);
  bool surely_empty(SchemaId id);
  bool may_be(SchemaId id, uint32_t type);
  bool find_inhabited(SchemaId id);
  bool inhabited(const ObjectShape& shape);
  bool meet_some(const ObjectShape& shape, size_t from, std::map<std::string, SchemaId>& chosen);
  bool inhabited(const ArrayShape& shape);

  SchemaAlgebra& algebra_;
  RegexArena& arena_;
  const Rx any_text_, free_body_, any_number_;
  const bool narrow_;  // strings may not be any text
  std::string problem_, problem_keyword_;
  std::unordered_map<SchemaId, Scalars> scalars_;
  template <class Shape>
  struct Memo {
    std::map<std::pair<SchemaId, bool>, std::vector<Shape>> done;
    std::set<std::pair<SchemaId, bool>> open;
  };
  Memo<ObjectShape> object_memo_;
  Memo<ArrayShape> array_memo_;
  template <class Shape>
  Memo<Shape>& memo();
  std::set<SchemaId> open_scalars_, open_types_;
  std::unordered_map<SchemaId, bool> inhabited_;
  std::set<SchemaId> open_inhabited_;
  int64_t steps_ = 0;
};

}  // namespace deepinfer
