// grammar/regex.h - regular languages over bytes: hash-consed expressions and their derivatives.
//
// An expression is a number; equal expressions (after simplification) are the same number, so a set of derivatives is a
// deterministic automaton that is built as far as it is walked. Union, intersection and complement are all there: a
// pattern, a length and a format meet in one expression. The derivative is symbolic: edges() lists disjoint sets of
// bytes with what remains after any of them, so that a state costs a handful of steps and not 256.
// Source: Brzozowski 1964; Owens, Reppy, Turon 2009 for the simplifications.
//
// Promise: edges are memoised; sizes are bounded by `limits`, beyond which exhausted() is true and new expressions come
// out as kNothing: a language only ever shrinks, so an exhausted arena blocks but never lets anything wrong pass.
// Threads: one thread at a time; copies are independent.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/byte_set.h"
#include "grammar/host_name.h"

namespace deepinfer {

using Rx = uint32_t;
inline constexpr Rx kNothing = 0;    // no text
inline constexpr Rx kEmptyText = 1;  // the empty text only
inline constexpr Rx kAnyBytes = 2;   // every sequence of bytes
inline constexpr int32_t kNoLimit = -1;

struct RegexLimits {
  size_t max_nodes = 400'000;
  size_t max_edges = 1'000'000;
  // Parts of choices and intersections that one derivative may go through while the clock runs: some milliseconds, in which
  // nothing can be left off. Of 300 real schemas the hardest takes 1,500, the next one 500.
  size_t max_derivative = 5'000;
  // Processor time between start_clock() and stop_clock(), so that a busy machine refuses nothing that an idle one accepts.
  int64_t max_cpu_us = 2'000'000;
};

class RegexArena {
 public:
  struct Edge {
    ByteSet bytes;
    Rx next = kNothing;
  };

  explicit RegexArena(const RegexLimits& limits = {});

  Rx bytes(const ByteSet& set);
  Rx literal(std::string_view text);
  Rx concat(Rx first, Rx second);
  Rx concat(std::initializer_list<Rx> parts);
  Rx alternate(std::vector<Rx> choices);
  Rx intersect(std::vector<Rx> parts);
  Rx complement(Rx rx);
  Rx repeat(Rx rx, int32_t min, int32_t max);  // max may be kNoLimit
  Rx optional(Rx rx) { return alternate({rx, kEmptyText}); }
  // What stands between the quotes of a JSON string whose decoded text is in `text`: UTF-8 as it is, the short escapes,
  // \u00XX for other control characters.
  Rx json_body(Rx text);
  // The decimal texts (digits, optionally a point and digits) that are multiples of modulus / 10^scale.
  // REQUIRES: 0 < modulus <= 2^31, 0 <= scale <= 9.
  Rx multiple_of(uint32_t modulus, uint32_t scale);
  // Names of hosts, A-labels included (grammar/host_name.h).
  Rx host_name();
  bool is_host_name(Rx rx) const { return kind(rx) == Kind::kHostName; }
  // The same where it is a name of hosts or a choice of such; what is one and more besides, as a length, comes without A-labels
  // where something is left then: whether one of them has that too is a search at each byte.
  Rx with_plain_hosts(Rx rx);
  // Each byte of the derivative takes a search, so that it is better asked for one than for all.
  bool is_costly(Rx rx) const;
  // Of what is_costly(): so many of HostName::is_in_a_label() surely fit, and it does not end between them.
  size_t free_bytes(Rx rx) const;

  bool nullable(Rx rx) const { return nodes_[rx].nullable; }
  // Disjoint; bytes that are missing lead to kNothing. Valid until the next call.
  std::span<const Edge> edges(Rx rx);
  Rx derive(Rx rx, uint8_t byte);
  // The same, for one byte alone and not memoised where is_costly().
  Rx derive_alone(Rx rx, uint8_t byte);
  bool matches(Rx rx, std::string_view text);
  // Some text is in the language. Exact, but a search where intersections and complements are involved; a search that
  // finds no answer within its budget says no.
  bool alive(Rx rx);

  // `rx` begins with a repetition, which may stand inside a json_body(): what is repeated, how often at most, what follows.
  struct StringRest {
    Rx unit = kNothing;
    int32_t max = 0;
    bool in_body = false;
  };
  StringRest string_rest(Rx rx) const;
  // `rx` begins with a json_body(): of which text, and what follows; kNothing where it does not.
  Rx body_text(Rx rx) const;
  Rx body_tail(Rx rx) const { return kind(rx) == Kind::kConcat && kind(arg(rx, 0)) == Kind::kJsonBody ? arg(rx, 1) : kNothing; }
  // Every text of plain characters (vocabulary.h) can be gone on with to endlessly many texts of the language, as the expression
  // shows: the names of an open object but for those that are known, what a pattern wants only at the end. May say no where it is
  // so.
  struct PlainChars {
    Rx any, dot;  // one of any characters, one of a pattern's `.`: both hold the plain ones
    bool has(Rx rx) const { return rx == any || rx == dot; }
  };
  bool goes_on(Rx rx, const PlainChars& plain);

  // Begins to count the processor time of this thread against the limit, or what is left of it; stop_clock() gives what is left
  // then.
  void start_clock() { start_clock(limits_.max_cpu_us); }
  void start_clock(int64_t left_us);
  int64_t stop_clock();
  // Looks at the clock now and then; the arena is exhausted when the time is over.
  bool out_of_time();

  size_t num_nodes() const { return nodes_.size(); }
  // Whether less than half of its room is taken.
  bool roomy() const { return nodes_.size() < limits_.max_nodes / 2 && edges_.size() < limits_.max_edges / 2; }
  // From here on there is as much room as at the beginning, whatever is there.
  void extend() {
    most_nodes_ = nodes_.size() + limits_.max_nodes;
    most_edges_ = edges_.size() + limits_.max_edges;
  }
  bool exhausted() const { return exhausted_ || gave_up_; }
  // Exhausted otherwise than by a search of alive() without an answer, which is narrower than the language but no reason to stop.
  bool spent() const { return exhausted_; }
  void exhaust() { exhausted_ = true; }
  size_t bytes() const;
  // Forgets the edges, where there are many; they are made again where they are needed.
  void forget_edges();

 private:
  friend class RegexTranslation;
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kBytes,
    kConcat,
    kOr,
    kAnd,
    kNot,
    kRepeat,
    kJsonBody,
    kJsonEscape,
    kMultiple,
    kHostName
  };
  enum class Known : uint8_t { kUnknown, kYes, kNo };
  struct Node {
    Kind kind;
    bool nullable;
    bool positive;  // no intersection, complement or arithmetic inside: alive unless kNothing
    Known alive = Known::kUnknown;
    uint32_t args, num_args;
    uint32_t edges = 0, num_edges = 0;
    bool has_edges = false;
    Known goes_on = Known::kUnknown, finite = Known::kUnknown;
    uint32_t chain = 0;  // next node of the same hash bucket
  };
  using Edges = std::vector<Edge>;

  Rx intern(Kind kind, std::span<const uint32_t> args, bool nullable, bool positive);
  void grow_buckets();
  // Those of its arguments that are expressions come first.
  size_t num_parts(Rx rx) const;
  std::span<const uint32_t> args(Rx rx) const { return {args_.data() + nodes_[rx].args, nodes_[rx].num_args}; }
  uint32_t arg(Rx rx, size_t i) const { return args_[nodes_[rx].args + i]; }
  Kind kind(Rx rx) const { return nodes_[rx].kind; }
  ByteSet set_of(Rx rx) const;
  bool too_much(size_t parts);
  void join_counts(std::vector<Rx>& choices);
  Rx factor(std::vector<Rx>& choices, int depth);
  Rx alternate_at(std::vector<Rx> choices, int depth);
  Rx json_escape(Rx text);
  Rx multiple_node(uint32_t modulus, uint32_t rest, uint32_t left, uint32_t phase);

  Edges edges_copy(Rx rx);
  Edges compute_edges(Rx rx);
  Edges concat_edges(Rx rx);
  Edges combined_edges(Rx rx, bool is_and);
  Edges not_edges(Rx rx);
  Edges repeat_edges(Rx rx);
  Edges body_edges(Rx rx);
  Edges escape_edges(Rx rx);
  Edges multiple_edges(Rx rx);
  Rx host_node(const HostName& name);
  Edges host_edges(Rx rx);
  Edges combine(const std::vector<Edges>& parts, bool is_and);
  bool find_alive(Rx rx);
  bool find_goes_on(Rx rx, const PlainChars& plain);
  bool leaves_enough(Rx rx, Rx any_char);
  bool ends_go_on(Rx rx, const PlainChars& plain);
  Rx of_ends(Rx rx, const PlainChars& plain);
  bool finite(Rx rx);
  bool search_alive(Rx rx);

  RegexLimits limits_;
  size_t most_nodes_ = limits_.max_nodes, most_edges_ = limits_.max_edges;
  std::vector<Node> nodes_;
  std::vector<uint32_t> args_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> buckets_;
  uint32_t deriving_ = 0;  // derivatives within derivatives
  size_t work_ = 0;        // of the outermost
  bool exhausted_ = false, gave_up_ = false, has_hosts_ = false;
  int64_t deadline_us_ = 0;  // of the thread's processor time; 0 = no limit
  uint32_t ticks_ = 0;
};

// Expressions of one arena in another. Both began as copies of one arena with `num_shared` expressions, whose numbers agree.
class RegexTranslation {
 public:
  RegexTranslation(const RegexArena& from, RegexArena& to, size_t num_shared) : from_(from), to_(to), num_shared_(num_shared) {}
  Rx operator()(Rx rx);

 private:
  Rx known(Rx rx) const { return rx < num_shared_ ? rx : known_.at(rx); }
  void make(Rx rx);

  const RegexArena& from_;
  RegexArena& to_;
  const size_t num_shared_;
  std::unordered_map<Rx, Rx> known_;
};

}  // namespace deepinfer
