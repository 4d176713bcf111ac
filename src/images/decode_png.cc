// PNG through libpng. Its errors jump, so what must be released lives outside the functions that may be left that way.
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "images/decode.h"

namespace deepinfer {

namespace {

struct Source {
  std::string_view bytes;
  size_t at = 0;
};

struct Session {
  png_structp png = nullptr;
  png_infop info = nullptr;
  Source source;
  std::vector<uint8_t> rgba;
  std::vector<png_bytep> rows;
  bool has_header = false;

  ~Session() { png_destroy_read_struct(&png, &info, nullptr); }
};

void read_bytes(png_structp png, png_bytep out, size_t size) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (size > source->bytes.size() - source->at) png_error(png, "cut off");
  std::memcpy(out, source->bytes.data() + source->at, size);
  source->at += size;
}

void on_error(png_structp png, png_const_charp) { std::longjmp(png_jmpbuf(png), 1); }
void on_warning(png_structp, png_const_charp) {}

// No objects with destructors may live here: libpng leaves by longjmp.
bool read_header(Session& session) {
  if (setjmp(png_jmpbuf(session.png))) return false;
  png_read_info(session.png, session.info);
  return true;
}

bool read_pixels(Session& session) {
  if (setjmp(png_jmpbuf(session.png))) return false;
  png_read_image(session.png, session.rows.data());
  png_read_end(session.png, nullptr);
  return true;
}

bool set_transforms(Session& session) {
  if (setjmp(png_jmpbuf(session.png))) return false;
  png_set_expand(session.png);
  png_set_strip_16(session.png);
  png_set_gray_to_rgb(session.png);
  png_set_add_alpha(session.png, 0xFF, PNG_FILLER_AFTER);
  png_set_interlace_handling(session.png);
  png_read_update_info(session.png, session.info);
  return true;
}

}  // namespace

DecodedImage decode_png(std::string_view bytes, const DecodeLimits& limits) {
  Session session;
  session.source.bytes = bytes;
  session.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, on_error, on_warning);
  if (!session.png) return ImageFault::kDecode;
  session.info = png_create_info_struct(session.png);
  if (!session.info) return ImageFault::kDecode;
  png_set_read_fn(session.png, &session.source, read_bytes);
  // The library's own limits stop chunk bombs; the sides are ours to report.
  png_set_user_limits(session.png, 0x7FFFFFFF, 0x7FFFFFFF);
  png_set_chunk_malloc_max(session.png, 8 << 20);
  png_set_chunk_cache_max(session.png, 64);
  if (!read_header(session)) return ImageFault::kDecode;
  const png_uint_32 width = png_get_image_width(session.png, session.info);
  const png_uint_32 height = png_get_image_height(session.png, session.info);
  ImageFault fault{};
  if (!check_sides(width, height, limits, fault)) return fault;
  if (!set_transforms(session)) return ImageFault::kDecode;
  if (png_get_rowbytes(session.png, session.info) != size_t{width} * 4) return ImageFault::kDecode;
  session.rgba.resize(size_t{width} * height * 4);
  session.rows.resize(height);
  for (size_t y = 0; y < height; ++y) session.rows[y] = session.rgba.data() + y * width * 4;
  // The reference reports pixels that do not come as an empty picture.
  if (!read_pixels(session)) return ImageFault::kEmpty;
  return on_white(session.rgba, static_cast<int32_t>(width), static_cast<int32_t>(height));
}

}  // namespace deepinfer
