#include "host/prefix_report.h"

namespace deepinfer {

Json prefix_report(const PrefixVerdict& verdict, int64_t prompt_tokens, const Tokenizer& tokenizer) {
  Json out = Json::object({{"prompt_tokens", prompt_tokens},
                           {"cached_tokens", verdict.cached_tokens},
                           {"loaded_tokens", verdict.loaded_tokens},
                           {"replayed_tokens", verdict.replayed_tokens},
                           {"reason", miss_reason_name(verdict.reason)}});
  if (verdict.first_different < 0) return out;
  out.set("first_different", verdict.first_different);
  out.set("before", tokenizer.decode(verdict.before.span()));
  out.set("here", tokenizer.decode(verdict.here.span()));
  out.set("there", tokenizer.decode(verdict.there.span()));
  return out;
}

}  // namespace deepinfer
