#include "api/token_log.h"

#include "api/finish_reason.h"
#include "recipe/python_json.h"

namespace deepinfer {

namespace {

Json choice_json(const LoggedToken::Choice& choice) {
  Json bytes = Json::array();
  for (const char byte : choice.bytes) bytes.push_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return Json::object({{"token", visible_bytes(choice.bytes)},
                       {"logprob", Json::number(python_number(choice.logprob))},
                       {"bytes", std::move(bytes)}});
}

}  // namespace

Json token_log_json(const LoggedToken& token) {
  Json out = choice_json(token.sampled);
  Json top = Json::array();
  for (const LoggedToken::Choice& choice : token.top) top.push_back(choice_json(choice));
  out.set("top_logprobs", std::move(top));
  return out;
}

}  // namespace deepinfer
