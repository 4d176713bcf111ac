// lab/bench_hand_over.h - the pages of a prompt from one worker to another, beside the same bytes in bare frames.
//
// Row router/hand_over: 512 pages of release size and a state (29 MB, 32k tokens) out of one memory into another: copied out as a
// device would, sent with checksums and confirmed in windows, kept, and copied in. Baseline "frames": the same bytes over the
// same transport, written where they belong. In turns, medians. Threads: one.
#pragma once

#include "base/result.h"
#include "lab/figures.h"

namespace deepinfer {

Status bench_hand_over(FigureReport& report);

}  // namespace deepinfer
