// JPEG through libjpeg-turbo. Its errors jump, so what must be released lives outside the functions that may be left that way.
#include <cstddef>
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>

#include "images/decode.h"

namespace deepinfer {

namespace {

struct ErrorManager {
  jpeg_error_mgr base;  // first: the library's pointer is ours
  std::jmp_buf leave;
  bool is_cut_off = false;
};

struct Progress {
  jpeg_progress_mgr base;
  int max_scans = 0;
};

struct Session {
  jpeg_decompress_struct jpeg{};
  ErrorManager errors;
  Progress progress;
  RgbImage image;
  std::vector<uint8_t> line;  // CMYK

  Session() = default;
  Session(const Session&) = delete;
  ~Session() { jpeg_destroy_decompress(&jpeg); }
};

void on_error(j_common_ptr jpeg) { std::longjmp(reinterpret_cast<ErrorManager*>(jpeg->err)->leave, 1); }

// Half a picture is no picture: missing data is only a warning to the library.
void on_message(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  const int code = jpeg->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER) reinterpret_cast<ErrorManager*>(jpeg->err)->is_cut_off = true;
}
void no_output(j_common_ptr) {}

void on_progress(j_common_ptr jpeg) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(jpeg);
  const int max_scans = reinterpret_cast<Progress*>(jpeg->progress)->max_scans;
  if (decompress->input_scan_number > max_scans) ERREXIT(jpeg, JERR_BAD_PROGRESSION);
}

// No objects with destructors may live in these: the library leaves by longjmp.
bool read_header(Session& session, std::string_view bytes) {
  if (setjmp(session.errors.leave)) return false;
  jpeg_create_decompress(&session.jpeg);
  session.jpeg.progress = &session.progress.base;
  jpeg_mem_src(&session.jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return jpeg_read_header(&session.jpeg, TRUE) == JPEG_HEADER_OK;
}

bool start(Session& session) {
  if (setjmp(session.errors.leave)) return false;
  const bool four = session.jpeg.jpeg_color_space == JCS_CMYK || session.jpeg.jpeg_color_space == JCS_YCCK;
  session.jpeg.out_color_space = four ? JCS_CMYK : JCS_RGB;
  return jpeg_start_decompress(&session.jpeg);
}

// Inks are written inverted by Adobe, who alone writes them. The shift by 8 is the reference's.
void cmyk_row(const uint8_t* in, bool inverted, int32_t width, uint8_t* out) {
  for (int32_t x = 0; x < width; ++x, in += 4, out += 3) {
    const int key = inverted ? in[3] : 255 - in[3];
    for (int c = 0; c < 3; ++c) {
      const int ink = inverted ? in[c] : 255 - in[c];
      out[c] = static_cast<uint8_t>(key - ((255 - ink) * key >> 8));
    }
  }
}

bool read_rows(Session& session) {
  if (setjmp(session.errors.leave)) return false;
  const bool four = session.jpeg.out_color_space == JCS_CMYK;
  while (session.jpeg.output_scanline < session.jpeg.output_height) {
    uint8_t* target = session.image.row(static_cast<int32_t>(session.jpeg.output_scanline));
    JSAMPROW row = four ? session.line.data() : target;
    jpeg_read_scanlines(&session.jpeg, &row, 1);
    if (four) cmyk_row(row, session.jpeg.saw_Adobe_marker, session.image.width, target);
  }
  jpeg_finish_decompress(&session.jpeg);
  return true;
}

}  // namespace

DecodedImage decode_jpeg(std::string_view bytes, const DecodeLimits& limits) {
  Session session;
  session.jpeg.err = jpeg_std_error(&session.errors.base);
  session.errors.base.error_exit = on_error;
  session.errors.base.emit_message = on_message;
  session.errors.base.output_message = no_output;
  session.progress.base.progress_monitor = on_progress;
  session.progress.max_scans = limits.max_scans;
  if (!read_header(session, bytes)) return ImageFault::kDecode;
  ImageFault fault{};
  if (!check_sides(session.jpeg.image_width, session.jpeg.image_height, limits, fault)) return fault;
  if (!start(session)) return ImageFault::kEmpty;
  session.image.width = static_cast<int32_t>(session.jpeg.output_width);
  session.image.height = static_cast<int32_t>(session.jpeg.output_height);
  session.image.pixels.resize(size_t{session.jpeg.output_width} * session.jpeg.output_height * 3);
  session.line.resize(size_t{session.jpeg.output_width} * 4);
  if (!read_rows(session) || session.errors.is_cut_off) return ImageFault::kEmpty;
  return std::move(session.image);
}

}  // namespace deepinfer
