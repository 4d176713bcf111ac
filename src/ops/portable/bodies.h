// ops/portable/bodies.h - all portable bodies.
#pragma once

#include "ops/portable/attention.h"
#include "ops/portable/draft.h"
#include "ops/portable/engram.h"
#include "ops/portable/experts.h"
#include "ops/portable/kv.h"
#include "ops/portable/matmul.h"
#include "ops/portable/rows.h"
#include "ops/portable/sample.h"
#include "ops/portable/select.h"
#include "ops/portable/vision.h"
