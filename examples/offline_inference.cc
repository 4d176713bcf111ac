// Offline inference with the C API: offline_inference [PROMPT] [MODEL_FOLDER]
#include <deepinfer.h>

#include <cstdio>

namespace {

int print_piece(void*, const char* text, size_t length, int reasoning) {
  if (!reasoning) std::fwrite(text, 1, length, stdout);
  return std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  deepinfer_options options = {};
  if (argc > 2) options.model = argv[2];
  deepinfer_engine* engine = nullptr;
  if (deepinfer_open(&options, &engine) != DEEPINFER_OK) {
    std::fprintf(stderr, "offline_inference: %s\n", deepinfer_last_error());
    return 1;
  }

  const deepinfer_message message = {"user", argc > 1 ? argv[1] : "What is the capital of France?"};
  deepinfer_request request = DEEPINFER_REQUEST_DEFAULTS;
  request.messages = &message;
  request.num_messages = 1;
  request.max_tokens = 256;
  deepinfer_result result = {};
  const deepinfer_code code = deepinfer_generate(engine, &request, print_piece, nullptr, &result);
  std::printf("\n");
  if (code == DEEPINFER_OK) {
    std::printf("%lld tokens in %.3f s\n", static_cast<long long>(result.completion_tokens), result.total_seconds);
  } else {
    std::fprintf(stderr, "offline_inference: %s\n", deepinfer_last_error());
  }
  deepinfer_close(engine);
  return code == DEEPINFER_OK ? 0 : 1;
}
