#include "server/chat_options.h"

namespace deepinfer {

void set_foreign(const ForeignFields& foreign, AskOptions& options) {
  options.top_k = foreign.top_k;
  options.min_p = foreign.min_p;
  options.repetition_penalty = foreign.repetition_penalty;
}

AskOptions chat_ask_options(const ChatRequest& request) {
  AskOptions options;
  if (request.gives_temperature) options.temperature = request.sampling.temperature;
  if (request.gives_top_p) options.top_p = request.sampling.top_p;
  options.seed = request.seed;
  options.max_tokens = request.max_tokens;
  options.stop = request.stop;
  options.frequency_penalty = request.frequency_penalty;
  options.presence_penalty = request.presence_penalty;
  options.logit_bias = request.logit_bias;
  if (!request.grammar.empty()) options.grammar = request.grammar;
  set_foreign(request.foreign, options);
  if (request.logprobs) options.num_logprobs = request.top_logprobs.value_or(0);
  return options;
}

}  // namespace deepinfer
