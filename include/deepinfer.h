/* deepinfer.h - the C API of libdeepinfer: open a model, ask it, close it.
 *
 * Purpose: offline inference inside another program. One engine holds one model; calls of deepinfer_generate() from
 * several threads run together in its batch.
 * Promise: no call throws, prints or ends the process. A function returns DEEPINFER_OK or another code, and
 * deepinfer_last_error() then says in one line what went wrong, where, and what to do. The same request with the same seed
 * gives the same bytes, alone or in company.
 * Threads: every function from any thread; an engine must not be closed while a call on it runs.
 *
 *   deepinfer_engine* engine = NULL;
 *   if (deepinfer_open(NULL, &engine) != DEEPINFER_OK) fail(deepinfer_last_error());   // the shipped model
 *   deepinfer_message message = {"user", "What is 12 + 30?"};
 *   deepinfer_request request = DEEPINFER_REQUEST_DEFAULTS;
 *   request.messages = &message;
 *   request.num_messages = 1;
 *   deepinfer_generate(engine, &request, print_piece, NULL, NULL);
 *   deepinfer_close(engine);
 */
#ifndef DEEPINFER_H_
#define DEEPINFER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DEEPINFER_API __attribute__((visibility("default")))
#else
#define DEEPINFER_API
#endif

typedef enum deepinfer_code {
  DEEPINFER_OK = 0,
  DEEPINFER_INVALID_ARGUMENT = 1,
  DEEPINFER_NOT_FOUND = 2,
  DEEPINFER_CORRUPT = 3,
  DEEPINFER_UNSUPPORTED = 4,
  DEEPINFER_TOO_LARGE = 5,
  DEEPINFER_EXHAUSTED = 6,
  DEEPINFER_CANCELLED = 7,
  DEEPINFER_IO = 8,
  DEEPINFER_INTERNAL = 9
} deepinfer_code;

typedef enum deepinfer_finish {
  DEEPINFER_FINISH_STOP = 0,
  DEEPINFER_FINISH_LENGTH = 1,
  DEEPINFER_FINISH_CANCELLED = 2
} deepinfer_finish;

typedef struct deepinfer_engine deepinfer_engine;

/* Every field may be 0 or NULL: then the default holds. */
typedef struct deepinfer_options {
  const char* model;  /* folder, "scripted:FILE" or "random:SPEC"; NULL = the shipped model */
  const char* device; /* "cpu" */
  int32_t threads;    /* 0 = all processors */
  int64_t context;    /* tokens of one sequence */
} deepinfer_options;

typedef struct deepinfer_message {
  const char* role; /* "system", "user", "assistant" */
  const char* content;
} deepinfer_message;

typedef struct deepinfer_request {
  const deepinfer_message* messages;
  size_t num_messages;
  const char* think; /* "off" (also NULL), "low", "high", "max" */
  float temperature; /* 0 = greedy; negative = the model's default */
  float top_p;       /* negative = the model's default */
  float min_p;
  int32_t top_k;      /* 0 = all */
  uint64_t seed;      /* below 2^63 */
  int32_t max_tokens; /* 0 = up to the context */
} deepinfer_request;

#define DEEPINFER_REQUEST_DEFAULTS \
  { NULL, 0, NULL, -1.0f, -1.0f, 0.0f, 0, 0, 0 }

typedef struct deepinfer_result {
  deepinfer_finish finish;
  int64_t prompt_tokens, completion_tokens;
  double first_token_seconds, total_seconds;
} deepinfer_result;

/* Called with complete UTF-8 as the answer grows; `reasoning` is 1 for thinking text. Another value than 0 cancels. */
typedef int (*deepinfer_on_text)(void* user, const char* text, size_t length, int reasoning);

/* options may be NULL. */
DEEPINFER_API deepinfer_code deepinfer_open(const deepinfer_options* options, deepinfer_engine** engine);
/* Ends what still runs. NULL is allowed. */
DEEPINFER_API void deepinfer_close(deepinfer_engine* engine);
/* Blocks until the answer is complete. on_text and result may be NULL. */
DEEPINFER_API deepinfer_code deepinfer_generate(deepinfer_engine* engine, const deepinfer_request* request,
                                                deepinfer_on_text on_text, void* user, deepinfer_result* result);
/* Of the last call of this thread that did not return DEEPINFER_OK; valid until this thread's next call. */
DEEPINFER_API const char* deepinfer_last_error(void);
DEEPINFER_API const char* deepinfer_version(void);

#ifdef __cplusplus
}
#endif

#endif /* DEEPINFER_H_ */
