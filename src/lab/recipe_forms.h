// lab/recipe_forms.h - requests, conversations and parsing options in the JSON form of the recipe's goldens.
//
// Threads: pure functions.
#pragma once

#include "api/chat/request.h"
#include "base/json.h"
#include "recipe/render.h"

namespace deepinfer {

Json conversation_form(const Conversation& conversation);
Json images_form(const std::vector<ImageReference>& images);
Json inference_form(const ChatRequest& request);
Json parsing_form(const ParseOptions& options, bool thinking);
// A case's `options` as server options.
ApiOptions options_from_form(const Json& options);

}  // namespace deepinfer
