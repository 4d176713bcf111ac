// recipe/control_tokens.h - how the template spells its control tokens.
//
// The one list of spellings; ids are always looked up in the tokenizer at hand. The bar is U+FF5C and the low line U+2581.
#pragma once

#include <string_view>

namespace deepinfer::control {

inline constexpr std::string_view kBeginOfText = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEndOfText = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystem = "<｜System｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kFimBegin = "<｜fim▁begin｜>";
inline constexpr std::string_view kFimHole = "<｜fim▁hole｜>";
inline constexpr std::string_view kFimEnd = "<｜fim▁end｜>";
inline constexpr std::string_view kReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kEndThink = "</think>";
inline constexpr std::string_view kMarkup = "｜DSML｜";  // the angle brackets around it are ordinary text
inline constexpr std::string_view kImage = "<｜image｜>";
// Released tokenizers spell the image placeholder differently from the recipe's text form; both mean the same id.
inline constexpr std::string_view kImageInTokenizer = "<｜deepseek_image｜>";

}  // namespace deepinfer::control
