#include "core/step_plan.h"

#include <cstring>

namespace deepinfer {
namespace {

constexpr int64_t kFormat = 1;

// Visits a sequence's numbers in the order in which they travel.
template <class Rows, class Visit>
void each_number(Rows& rows, Visit visit) {
  visit(rows.request), visit(rows.slot), visit(rows.begin), visit(rows.count), visit(rows.first_token);
  visit(rows.decoder_begin), visit(rows.window_floor), visit(rows.encoder_window_floor), visit(rows.write_floor);
  visit(rows.prompt_tokens), visit(rows.num_logits), visit(rows.rank);
}

class Writer {
 public:
  explicit Writer(std::vector<uint8_t>& out) : out_(out) {}
  void bytes(const void* data, size_t size) {
    const auto* begin = static_cast<const uint8_t*>(data);
    out_.insert(out_.end(), begin, begin + size);
  }
  void number(int64_t value) { bytes(&value, sizeof value); }

 private:
  std::vector<uint8_t>& out_;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : left_(bytes) {}
  bool ok() const { return ok_; }
  bool done() const { return ok_ && left_.empty(); }
  const uint8_t* bytes(uint64_t size) {
    ok_ &= size <= left_.size();
    if (!ok_) return nullptr;
    const uint8_t* at = left_.data();
    left_ = left_.subspan(size);
    return at;
  }
  template <class T>
  void number(T& out) {
    int64_t value = 0;
    if (const uint8_t* at = bytes(sizeof value)) std::memcpy(&value, at, sizeof value);
    out = static_cast<T>(value);
    ok_ &= static_cast<int64_t>(out) == value;
  }
  // Of things that take `size` bytes each at least.
  size_t count(uint64_t size) {
    int64_t value = 0;
    number(value);
    ok_ &= value >= 0 && static_cast<uint64_t>(value) <= left_.size() / size;
    return ok_ ? static_cast<size_t>(value) : 0;
  }

 private:
  std::span<const uint8_t> left_;
  bool ok_ = true;
};

bool lies_in(int64_t begin, int64_t count, size_t all) {
  return begin >= 0 && count >= 0 && begin <= static_cast<int64_t>(all) && count <= static_cast<int64_t>(all) - begin;
}

}  // namespace

void take_rank(const StepPlan& plan, int32_t rank, StepPlan& out) {
  out.tokens.clear(), out.sequences.clear(), out.images.clear();
  out.truncate_candidate_window = plan.truncate_candidate_window;
  for (const SequenceRows& rows : plan.sequences) {
    if (rows.rank != rank) continue;
    const int32_t moved = out.num_rows() - rows.first_token;
    const auto begin = plan.tokens.begin() + rows.first_token;
    out.tokens.insert(out.tokens.end(), begin, begin + rows.count);
    out.sequences.push_back(rows);
    out.sequences.back().first_token += moved;
    for (const ImageRows& image : plan.images) {
      if (image.token_begin < rows.first_token || image.token_begin >= rows.first_token + rows.count) continue;
      out.images.push_back(image);
      out.images.back().token_begin += moved;
    }
  }
}

std::vector<uint8_t> encode_plan(const StepPlan& plan, int32_t hidden) {
  std::vector<uint8_t> out;
  Writer writer(out);
  writer.number(kFormat);
  writer.number(plan.truncate_candidate_window);
  writer.number(static_cast<int64_t>(plan.tokens.size()));
  writer.bytes(plan.tokens.data(), plan.tokens.size() * sizeof(TokenId));
  writer.number(static_cast<int64_t>(plan.sequences.size()));
  for (const SequenceRows& rows : plan.sequences)
    each_number(rows, [&](auto value) { writer.number(static_cast<int64_t>(value)); });
  writer.number(static_cast<int64_t>(plan.images.size()));
  for (const ImageRows& image : plan.images) {
    writer.number(image.token_begin), writer.number(image.rows);
    writer.bytes(image.embeddings, static_cast<size_t>(image.rows) * static_cast<size_t>(hidden) * sizeof(uint16_t));
  }
  return out;
}

Result<StepPlan> decode_plan(std::span<const uint8_t> bytes, int32_t hidden) {
  StepPlan plan;
  Reader reader(bytes);
  int64_t format = 0;
  reader.number(format), reader.number(plan.truncate_candidate_window);
  if (!reader.ok() || format != kFormat) return corrupt("a step plan of a form that is not known here");
  plan.tokens.resize(reader.count(sizeof(TokenId)));
  const size_t token_bytes = plan.tokens.size() * sizeof(TokenId);
  if (const uint8_t* at = reader.bytes(token_bytes); at && token_bytes > 0) std::memcpy(plan.tokens.data(), at, token_bytes);
  plan.sequences.resize(reader.count(sizeof(int64_t)));
  for (SequenceRows& rows : plan.sequences) {
    each_number(rows, [&](auto& value) { reader.number(value); });
    if (!reader.ok() || !lies_in(rows.first_token, rows.count, plan.tokens.size()) || rows.num_logits < 0 ||
        rows.num_logits > rows.count || rows.rank < 0)
      return corrupt("a step plan whose sequences do not fit its tokens");
  }
  plan.images.resize(reader.count(sizeof(int64_t)));
  for (ImageRows& image : plan.images) {
    reader.number(image.token_begin), reader.number(image.rows);
    if (!reader.ok() || !lies_in(image.token_begin, image.rows, plan.tokens.size()))
      return corrupt("a step plan whose images do not fit its tokens");
    image.embeddings = reinterpret_cast<const uint16_t*>(
        reader.bytes(static_cast<uint64_t>(image.rows) * static_cast<uint64_t>(hidden) * sizeof(uint16_t)));
  }
  if (!reader.done()) return corrupt("a step plan that is cut off, or has bytes behind its end");
  return plan;
}

}  // namespace deepinfer
