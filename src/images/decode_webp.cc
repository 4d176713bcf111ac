// WebP through libwebp; of an animation the first frame on its canvas.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "images/decode.h"

namespace deepinfer {

namespace {

struct DemuxerDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
struct BytesDeleter {
  void operator()(uint8_t* bytes) const { WebPFree(bytes); }
};

// Lays a frame into a transparent canvas.
void place(const uint8_t* frame, int frame_width, int frame_height, int x0, int y0, int width, int height,
           std::vector<uint8_t>& canvas) {
  const int columns = std::min(frame_width, width - x0), rows = std::min(frame_height, height - y0);
  if (columns <= 0) return;
  for (int y = 0; y < rows; ++y) {
    const uint8_t* from = frame + static_cast<size_t>(y) * static_cast<size_t>(frame_width) * 4;
    const size_t to = (static_cast<size_t>(y0 + y) * static_cast<size_t>(width) + static_cast<size_t>(x0)) * 4;
    std::copy_n(from, static_cast<size_t>(columns) * 4, canvas.data() + to);
  }
}

}  // namespace

DecodedImage decode_webp(std::string_view bytes, const DecodeLimits& limits) {
  const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data.bytes, data.size, &features) != VP8_STATUS_OK) return ImageFault::kDecode;
  ImageFault fault{};
  if (!check_sides(features.width, features.height, limits, fault)) return fault;
  const std::unique_ptr<WebPDemuxer, DemuxerDeleter> demuxer(WebPDemux(&data));
  if (!demuxer) return ImageFault::kEmpty;
  const auto width = static_cast<int>(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH));
  const auto height = static_cast<int>(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT));
  if (!check_sides(width, height, limits, fault)) return fault;
  WebPIterator frame;
  if (!WebPDemuxGetFrame(demuxer.get(), 1, &frame)) return ImageFault::kEmpty;
  const WebPData fragment = frame.fragment;
  const int x0 = frame.x_offset, y0 = frame.y_offset;
  WebPDemuxReleaseIterator(&frame);
  if (WebPGetFeatures(fragment.bytes, fragment.size, &features) != VP8_STATUS_OK ||
      !check_sides(features.width, features.height, limits, fault)) {
    return ImageFault::kEmpty;
  }
  int frame_width = 0, frame_height = 0;
  const std::unique_ptr<uint8_t, BytesDeleter> pixels(WebPDecodeRGBA(fragment.bytes, fragment.size, &frame_width, &frame_height));
  if (!pixels) return ImageFault::kEmpty;
  std::vector<uint8_t> canvas(static_cast<size_t>(width) * static_cast<size_t>(height) * 4, 0);
  place(pixels.get(), frame_width, frame_height, x0, y0, width, height, canvas);
  return on_white(canvas, width, height);
}

}  // namespace deepinfer
