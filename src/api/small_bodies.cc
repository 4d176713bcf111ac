#include "api/small_bodies.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "api/decode.h"
#include "api/json_body.h"

namespace deepinfer {

namespace {

std::string iso_time(int64_t seconds) { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<time_t>(seconds))); }

}  // namespace

Json model_json(const ModelCard& card) {
  Json inputs = Json::array({"text"});
  if (card.reads_images) inputs.push_back("image");
  return Json::object(
      {{"id", card.id},
       {"object", "model"},
       {"created", card.created},
       {"owned_by", "deepinfer"},
       {"name", card.name},
       {"context_window", card.context},
       {"max_output_tokens", card.context - 1},
       {"input_modalities", std::move(inputs)},
       {"output_modalities", Json::array({"text"})},
       {"effort", Json::object({{"supported_levels", Json::array({"low", "high", "max"})}, {"default_level", "high"}})},
       // The form of Anthropic.
       {"type", "model"},
       {"display_name", card.name},
       {"created_at", iso_time(card.created)}});
}

Json model_list(const std::vector<ModelCard>& cards) {
  Json data = Json::array();
  for (const ModelCard& card : cards) data.push_back(model_json(card));
  Json first = cards.empty() ? Json() : Json(cards.front().id), last = cards.empty() ? Json() : Json(cards.back().id);
  return Json::object({{"object", "list"},
                       {"data", std::move(data)},
                       {"first_id", std::move(first)},
                       {"last_id", std::move(last)},
                       {"has_more", false}});
}

Result<TokenizeRequest> parse_tokenize_request(std::string_view body) {
  DI_TRY(const Json json, parse_json_body(body));
  TokenizeRequest request;
  std::optional<std::string> text;
  std::optional<bool> add_special_tokens, parse_special;
  const FieldReader read_text = into(text, read_string);
  DI_CHECK_OK(decode_struct(json, "TokenizeRequest",
                            {optional("prompt", read_text), optional("content", read_text), optional("text", read_text),
                             optional("add_special_tokens", into(add_special_tokens, read_bool)),
                             optional("parse_special", into(parse_special, read_bool))}));
  if (!text) return missing_field("prompt");
  request.text = std::move(*text);
  request.add_special_tokens = add_special_tokens.value_or(true);
  request.parse_special = parse_special.value_or(false);
  return request;
}

Json tokenize_json(const std::vector<TokenId>& ids, int64_t context) {
  Json tokens = Json::array();
  for (const TokenId id : ids) tokens.push_back(id);
  return Json::object({{"count", static_cast<int64_t>(ids.size())}, {"max_model_len", context}, {"tokens", std::move(tokens)}});
}

Result<std::vector<TokenId>> parse_detokenize_request(std::string_view body, int32_t vocab) {
  DI_TRY(const Json json, parse_json_body(body));
  std::vector<TokenId> ids;
  DI_CHECK_OK(decode_struct(json, "DetokenizeRequest", {required("tokens", [&](const Json& list) {
                              return read_list(list, [&](const Json& item) -> Status {
                                uint64_t id = 0;
                                DI_CHECK_OK(read_unsigned(item, "u32", INT32_MAX, id));
                                ids.push_back(static_cast<TokenId>(id));
                                return {};
                              });
                            })}));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocab) return invalid_argument(fmt::format("tokens[{}]: {} is not in the vocabulary of {}", i, ids[i], vocab));
  }
  return ids;
}

Json detokenize_json(const std::string& text) { return Json::object({{"prompt", text}, {"content", text}}); }

}  // namespace deepinfer
