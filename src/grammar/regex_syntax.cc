#include "grammar/regex_syntax.h"

#include "grammar/char_class.h"
#include "grammar/regex_ast.h"

namespace deepinfer {
namespace {

using Kind = RegexNode::Kind;

bool has(const RegexNode& node, bool (*what)(Kind)) {
  if (what(node.kind)) return true;
  for (const RegexNode& child : node.children) {
    if (has(child, what)) return true;
  }
  return false;
}
bool is_begin(Kind kind) { return kind == Kind::kBegin; }
bool is_assertion(Kind kind) {
  return kind == Kind::kBegin || kind == Kind::kEnd || kind == Kind::kLookAhead || kind == Kind::kNotAhead;
}

// Whether nothing has been read before a place.
enum class Before { kNothing, kSomething };

// Each node is translated together with all that follows it (`rest`, up to the end of the text): `$` then means that the
// rest is empty, and a look-ahead is an intersection with the rest.
class Translator {
 public:
  explicit Translator(RegexArena& arena) : arena_(arena), anything_(any_text(arena)) {}

  Result<Rx> translate(const RegexNode& node, Rx rest, Before before) {
    switch (node.kind) {
      case Kind::kEmpty: return rest;
      case Kind::kChars: return arena_.concat(utf8(arena_, node.chars), rest);
      case Kind::kConcat: return sequence(node.children, rest, before);
      case Kind::kAlternate: return choices(node, rest, before);
      case Kind::kRepeat: return repeat(node, rest, before);
      case Kind::kBegin: return before == Before::kNothing ? rest : kNothing;
      case Kind::kEnd: return arena_.nullable(rest) ? kEmptyText : kNothing;
      case Kind::kLookAhead:
      case Kind::kNotAhead: return look_ahead(node, rest, before);
    }
    return internal_error("regular expression node");
  }
  Rx anything() const { return anything_; }

 private:
  Result<Rx> choices(const RegexNode& node, Rx rest, Before before) {
    // Without assertions inside, what follows is shared by all choices.
    const bool plain = !has(node, is_assertion);
    std::vector<Rx> out;
    for (const RegexNode& child : node.children) {
      DI_TRY(const Rx rx, translate(child, plain ? kEmptyText : rest, before));
      out.push_back(rx);
    }
    const Rx all = arena_.alternate(std::move(out));
    return plain ? arena_.concat(all, rest) : all;
  }

  Result<Rx> sequence(std::span<const RegexNode> parts, Rx rest, Before before) {
    // From the back; a part stands at the beginning only while all parts before it read nothing.
    std::vector<Before> place(parts.size(), before);
    for (size_t i = 0, seen = 0; i < parts.size(); ++i) {
      if (seen > 0) place[i] = Before::kSomething;
      if (seen == 1 && has(parts[i], is_begin)) {
        return unsupported("a '^' behind something that may be empty cannot be enforced");
      }
      if (is_assertion(parts[i].kind)) continue;
      DI_TRY(const Rx alone, translate(parts[i], kEmptyText, before));
      seen = std::max<size_t>(seen, arena_.nullable(alone) ? 1 : 2);
    }
    for (size_t i = parts.size(); i-- > 0;) {
      DI_TRY(rest, translate(parts[i], rest, place[i]));
    }
    return rest;
  }

  Result<Rx> repeat(const RegexNode& node, Rx rest, Before before) {
    const RegexNode& unit = node.children[0];
    if (has(unit, is_assertion)) {
      if (node.max != 1) return unsupported("an anchor or look-ahead inside a repeated group cannot be enforced");
      DI_TRY(const Rx once, translate(unit, rest, before));
      return node.min == 1 ? once : arena_.alternate({once, rest});
    }
    DI_TRY(const Rx rx, translate(unit, kEmptyText, before));
    return arena_.concat(arena_.repeat(rx, node.min, node.max), rest);
  }

  Result<Rx> look_ahead(const RegexNode& node, Rx rest, Before before) {
    DI_TRY(const Rx ahead, translate(node.children[0], anything_, before));
    return arena_.intersect({node.kind == Kind::kLookAhead ? ahead : arena_.complement(ahead), rest});
  }

  RegexArena& arena_;
  Rx anything_;
};

}  // namespace

Result<Rx> parse_regex(RegexArena& arena, std::string_view pattern, RegexUse use) {
  DI_TRY(const RegexNode tree, parse_regex_tree(pattern));
  Translator translator(arena);
  if (use == RegexUse::kWhole) return translator.translate(tree, kEmptyText, Before::kNothing);
  const Rx anything = translator.anything();
  DI_TRY(const Rx first, translator.translate(tree, anything, Before::kNothing));
  DI_TRY(const Rx later, translator.translate(tree, anything, Before::kSomething));
  // Without '^' the second form covers the first. With it the second stands behind something only: in a look-ahead that must
  // not match, a '^' that does not hold allows more and not less.
  if (first == later) return arena.concat(anything, later);
  const Rx something = arena.intersect({anything, arena.complement(kEmptyText)});
  return arena.alternate({first, arena.concat(something, later)});
}

}  // namespace deepinfer
