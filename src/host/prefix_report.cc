#include "host/prefix_report.h"

#include "host/prefix_lint.h"

namespace deepinfer {

Json prefix_report(const PrefixVerdict& verdict, int64_t prompt_tokens, const Tokenizer& tokenizer, const PromptMap& map) {
  Json out = Json::object({{"prompt_tokens", prompt_tokens},
                           {"cached_tokens", verdict.cached_tokens},
                           {"loaded_tokens", verdict.loaded_tokens},
                           {"replayed_tokens", verdict.replayed_tokens},
                           {"reason", miss_reason_name(verdict.reason)}});
  if (verdict.first_different < 0) return out;
  out.set("first_different", verdict.first_different);
  if (const int32_t message = map.message_at(verdict.first_different); message >= 0) out.set("message", message);
  out.set("before", tokenizer.decode(verdict.before.span()));
  out.set("here", tokenizer.decode(verdict.here.span()));
  out.set("there", tokenizer.decode(verdict.there.span()));
  if (const auto hint = prefix_hint(verdict, tokenizer)) {
    out.set("hint", hint->name);
    out.set("advice", hint->advice);
  }
  return out;
}

std::optional<PrefixHint> prefix_hint(const PrefixVerdict& verdict, const Tokenizer& tokenizer) {
  if (!verdict.sides) return std::nullopt;
  const PrefixSides& sides = *verdict.sides;
  return lint_prefix(tokenizer.decode(sides.before), tokenizer.decode(sides.here), tokenizer.decode(sides.there));
}

}  // namespace deepinfer
