#include "images/scale.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace deepinfer {

namespace {

// Which four source places a target place mixes, and how.
struct Taps {
  std::array<int32_t, 4> at{};
  std::array<float, 4> weight{};
};

std::vector<Taps> cubic_taps(int32_t from, int32_t to) {
  constexpr float kA = -0.75f;
  std::vector<Taps> taps(static_cast<size_t>(to));
  const double step = static_cast<double>(from) / to;
  for (int32_t i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * step - 0.5;
    const auto base = static_cast<int32_t>(std::floor(centre));
    const auto x = static_cast<float>(centre - base);
    Taps& tap = taps[static_cast<size_t>(i)];
    tap.weight[0] = ((kA * (x + 1) - 5 * kA) * (x + 1) + 8 * kA) * (x + 1) - 4 * kA;
    tap.weight[1] = ((kA + 2) * x - (kA + 3)) * x * x + 1;
    tap.weight[2] = ((kA + 2) * (1 - x) - (kA + 3)) * (1 - x) * (1 - x) + 1;
    tap.weight[3] = 1 - tap.weight[0] - tap.weight[1] - tap.weight[2];
    for (int k = 0; k < 4; ++k) tap.at[static_cast<size_t>(k)] = std::clamp(base - 1 + k, 0, from - 1);
  }
  return taps;
}

uint8_t to_byte(float value) { return static_cast<uint8_t>(std::clamp(std::lround(value), 0l, 255l)); }

// A row of the source spread to the target's width.
void spread_row(const uint8_t* row, const std::vector<Taps>& taps, float* out) {
  for (const Taps& tap : taps) {
    for (size_t c = 0; c < 3; ++c) {
      float sum = 0;
      for (size_t k = 0; k < 4; ++k) sum += tap.weight[k] * row[static_cast<size_t>(tap.at[k]) * 3 + c];
      *out++ = sum;
    }
  }
}

// The shares of source places [first, first + size) in a target place.
struct Share {
  int32_t first = 0;
  std::vector<float> weight;
};

std::vector<Share> area_shares(int32_t from, int32_t to) {
  std::vector<Share> shares(static_cast<size_t>(to));
  const double step = static_cast<double>(from) / to;
  for (int32_t i = 0; i < to; ++i) {
    const double begin = i * step, end = std::min<double>((i + 1) * step, from);
    Share& share = shares[static_cast<size_t>(i)];
    share.first = std::min(static_cast<int32_t>(begin), from - 1);
    for (int32_t at = share.first; at < from && at < end; ++at) {
      const double covered = std::min<double>(at + 1, end) - std::max<double>(at, begin);
      share.weight.push_back(static_cast<float>(covered / (end - begin)));
    }
  }
  return shares;
}

}  // namespace

RgbImage scale_bicubic(const RgbImage& image, int32_t width, int32_t height) {
  RgbImage out{width, height, {}};
  const size_t line = static_cast<size_t>(width) * 3;
  out.pixels.resize(line * static_cast<size_t>(height));
  const std::vector<Taps> across = cubic_taps(image.width, width), down = cubic_taps(image.height, height);
  // Four spread rows are alive at a time, each under the source row it came from.
  std::array<std::vector<float>, 4> rows;
  std::array<int32_t, 4> held{-1, -1, -1, -1};
  for (auto& row : rows) row.resize(line);
  for (int32_t y = 0; y < height; ++y) {
    const Taps& tap = down[static_cast<size_t>(y)];
    std::array<const float*, 4> source{};
    for (size_t k = 0; k < 4; ++k) {
      const auto slot = static_cast<size_t>(tap.at[k] % 4);
      if (held[slot] != tap.at[k]) {
        spread_row(image.row(tap.at[k]), across, rows[slot].data());
        held[slot] = tap.at[k];
      }
      source[k] = rows[slot].data();
    }
    uint8_t* target = out.row(y);
    for (size_t i = 0; i < line; ++i) {
      target[i] = to_byte(tap.weight[0] * source[0][i] + tap.weight[1] * source[1][i] + tap.weight[2] * source[2][i] +
                          tap.weight[3] * source[3][i]);
    }
  }
  return out;
}

RgbImage scale_area(const RgbImage& image, int32_t width, int32_t height) {
  RgbImage out{width, height, {}};
  out.pixels.resize(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  const std::vector<Share> across = area_shares(image.width, width), down = area_shares(image.height, height);
  std::vector<float> sum(static_cast<size_t>(width) * 3);
  for (int32_t y = 0; y < height; ++y) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    const Share& rows = down[static_cast<size_t>(y)];
    for (size_t r = 0; r < rows.weight.size(); ++r) {
      const uint8_t* row = image.row(rows.first + static_cast<int32_t>(r));
      for (size_t x = 0; x < across.size(); ++x) {
        const Share& columns = across[x];
        for (size_t k = 0; k < columns.weight.size(); ++k) {
          const float weight = rows.weight[r] * columns.weight[k];
          const uint8_t* pixel = row + (static_cast<size_t>(columns.first) + k) * 3;
          for (size_t c = 0; c < 3; ++c) sum[x * 3 + c] += weight * pixel[c];
        }
      }
    }
    uint8_t* target = out.row(y);
    for (size_t i = 0; i < sum.size(); ++i) target[i] = to_byte(sum[i]);
  }
  return out;
}

}  // namespace deepinfer
