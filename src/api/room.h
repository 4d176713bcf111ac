// api - wire dialects without sockets: bytes to a checked request, events to the wire's objects. One folder a dialect; what
// all dialects share (JSON texts, field decoding, common rules, schemas, images, errors, profiles) lies beside them.
//
//   auto request = parse_chat_request(body, options);              // chat/request.h
//   if (!request) reply(wire_status(request.error().code).http, error_body(request.error()).dump());   // errors.h
//   ChatAnswerWriter writer(info);                                 // chat/response.h
//   send(writer.event(event, stream).dump());
#pragma once

#include "api/chat/request.h"
#include "api/chat/response.h"
#include "api/completions/request.h"
#include "api/completions/response.h"
#include "api/errors.h"
#include "api/messages/request.h"
#include "api/messages/response.h"
#include "api/profile.h"
#include "api/responses/request.h"
#include "api/responses/response.h"
#include "api/responses/store.h"
#include "api/small_bodies.h"
