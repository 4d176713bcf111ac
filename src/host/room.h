// host - opens what a conversation needs and runs it: device, model, tokenizer and engine from settings, one conversation
// through recipe and engine, and the C API of libdeepinfer on top of that. What faces the outside (command line, later HTTP)
// calls this room and never wires rooms together by itself.
#pragma once

#include "host/ask.h"
#include "host/compressed_file.h"
#include "host/host.h"
#include "host/settings.h"
#include "host/shipped_files.h"
