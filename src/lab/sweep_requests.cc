#include "lab/sweep_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "recipe/conversation.h"
#include "recipe/render.h"

namespace deepinfer {
namespace {

constexpr const char* kHeroes[] = {"fox",  "boat", "dog",  "garden", "king",  "cat",   "river", "bear",
                                   "star", "bird", "girl", "farmer", "train", "mouse", "tree",  "boy"};

// Mostly stories, as their answers are long.
std::string task(int32_t i) {
  constexpr const char* kKinds[] = {"", "clever ", "little "};
  const char* hero = kHeroes[static_cast<size_t>(i / 4) % std::size(kHeroes)];
  const int32_t kind = i % 4;
  if (kind < 3) return fmt::format("Tell me a short story about a {}{}.", kKinds[kind], hero);
  return fmt::format("Sort these numbers: {}, {}, {}, {}, {}", 3 + i % 50, 90 - i % 37, 5 + i % 11, 41 + i % 29, 1 + i % 7);
}

}  // namespace

const char* text_name(SweepText text) {
  switch (text) {
    case SweepText::kEasy: return "easy";
    case SweepText::kHard: return "hard";
    case SweepText::kAdversarial: return "adversarial";
    case SweepText::kMixed: return "mixed";
  }
  return "";
}

std::string name_of(const SweepTraffic& traffic) {
  return fmt::format("spec/{}/{}/{}", text_name(traffic.text), traffic.sampled ? "sampled" : "greedy", traffic.streams);
}

Result<std::vector<Request>> sweep_requests(const Host& host, const SweepTraffic& traffic) {
  const int32_t vocab = std::min(host.model().shape().vocab, host.tokenizer().vocab_size());
  std::vector<Request> requests;
  for (int32_t i = 0; i < std::max(traffic.streams, 8); ++i) {
    Request request;
    request.max_tokens = traffic.streams <= 8 ? 96 : 64;
    request.sampling.temperature = traffic.sampled ? 1.0f : 0.0f;
    request.sampling.seed = static_cast<uint64_t>(100 + i);
    if (traffic.text == SweepText::kHard || (traffic.text == SweepText::kMixed && i % 2 == 1)) {
      // Beside easy texts so short that both take about as many steps, and always five drafts give about 3.3 tokens a step.
      if (traffic.text == SweepText::kMixed) request.max_tokens /= 4;
      for (int32_t k = 0; k < 48; ++k) request.prompt.push_back(3 + (k * 7919 + i * 104729) % std::max(1, vocab / 2));
    } else {
      Conversation conversation;
      conversation.messages.push_back(Message::user(task(i)));
      DI_TRY(request.prompt, render_prompt(conversation).encode(host.tokenizer()));
      request.stop_ids = {host.model().shape().eos_id};
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

void shorten(std::vector<Request>& requests, int32_t streams, double steps) {
  constexpr double kLeastTokens = 24;
  const double tokens = requests[0].max_tokens;
  const auto rounds = static_cast<size_t>(std::max(1.0, steps / tokens));
  requests.resize(std::min(requests.size(), rounds * static_cast<size_t>(streams)));
  const double part = std::min(1.0, std::max(kLeastTokens, steps) / tokens);
  for (Request& request : requests) request.max_tokens = static_cast<int32_t>(std::ceil(part * request.max_tokens));
}

}  // namespace deepinfer
