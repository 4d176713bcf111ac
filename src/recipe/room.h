// recipe - what stands between a wire and the engine: one internal conversation, one renderer that turns it into a prompt,
// one parser that turns generated text back into reasoning, answer and tool calls. No JSON bodies, no sockets, no model.
//
//   Conversation chat;                              // conversation.h
//   chat.messages = {Message::system("Be brief."), Message::user("What is 12 + 30?")};
//   chat.thinking = false;
//   Prompt prompt = render_prompt(chat);            // render.h
//   auto ids = prompt.encode(tokenizer);            // control tokens by id, text with added tokens switched off
//
//   OutputStream stream(tokenizer, parse_options(chat, stop));     // output_stream.h
//   stream.push_tokens(new_ids, {}, events);        // kStart, kReasoning, kContent, kToolBegin, kToolArguments, kFinish
//   if (stream.finished()) ...                      // a stop string ended it: tell the engine
#pragma once

#include "recipe/constraint.h"
#include "recipe/control_tokens.h"
#include "recipe/conversation.h"
#include "recipe/output_stream.h"
#include "recipe/parse.h"
#include "recipe/prompt_cache.h"
#include "recipe/python_json.h"
#include "recipe/render.h"
#include "recipe/sampling.h"
