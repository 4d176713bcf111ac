// images - bytes a client sent to pixels a model reads: sniff, decode (PNG, JPEG, WebP, first frame of a GIF), plan the size,
// scale, letter-box, hash. No network, no model, no wire words.
// Promise: any bytes give an image or a precise problem, within limits of bytes, pixels and scans; nothing here trusts a header
// before the limits have seen it.
//
//   ImageResolver resolver(ImageLimits{});
//   auto images = resolver.resolve({{.url = "data:image/png;base64,..."}});      // resolve.h
//   std::vector<uint16_t> patches = image_patches(images->front().image, 14);    // prepare.h
#pragma once

#include "images/decode.h"
#include "images/plan.h"
#include "images/prepare.h"
#include "images/resolve.h"
