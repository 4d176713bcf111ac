#include "core/kv_layout.h"

namespace deepinfer {
namespace {

constexpr int64_t kSectionAlignment = 128;

int64_t align_up(int64_t value) { return (value + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment; }

}  // namespace

int32_t KvLayout::section_of(int32_t layer) const {
  for (size_t i = 0; i < sections.size(); ++i) {
    if (sections[i].layer == layer) return static_cast<int32_t>(i);
  }
  return -1;
}

KvLayout make_kv_layout(const ModelShape& shape, int32_t page_tokens) {
  KvLayout layout;
  layout.page_tokens = page_tokens;
  layout.head_dim = shape.head_dim;
  layout.index_dim = shape.index_dim;
  int64_t at = 0;
  const auto place = [&at](int64_t bytes) {
    const int64_t offset = at;
    at = align_up(at + bytes);
    return offset;
  };
  int32_t ratio2_sources = 0;
  for (const int32_t layer : shape.kv_sources) {
    PageSection section;
    section.layer = layer;
    section.ratio = shape.compress_ratios[static_cast<size_t>(layer)];
    section.entries = page_tokens / section.ratio;
    section.main_codes = place(int64_t{section.entries} * shape.head_dim / 2);
    section.main_scales = place(int64_t{section.entries} * shape.head_dim / 16);
    section.index_codes = place(int64_t{section.entries} * shape.index_dim / 2);
    section.index_scales = place(int64_t{section.entries} * shape.index_dim / 32);
    layout.sections.push_back(section);
    ratio2_sources += section.ratio == 2;
  }
  layout.page_bytes = at;

  layout.ring_slots = shape.window + kRingSlack;
  layout.ring_codes_bytes = int64_t{layout.ring_slots} * shape.head_dim;
  layout.ring_bytes = align_up(layout.ring_codes_bytes + int64_t{layout.ring_slots} * shape.head_dim / 32);
  layout.rings = shape.layers + shape.draft_stages;
  layout.tails_offset = layout.ring_bytes * layout.rings;
  layout.history_offset = layout.tail_offset(ratio2_sources);
  layout.state_bytes = align_up(layout.history_offset + int64_t{layout.ring_slots} * 4);
  return layout;
}

}  // namespace deepinfer
