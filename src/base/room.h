// base - what every program needs and no language model: errors as values, JSON with exact numbers, UTF-8, files, a thread
// pool, settings with one visitor. Nothing here knows a token. Enters no other room.
#pragma once

#include "base/clock.h"
#include "base/fields.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/hash.h"
#include "base/huge_pages.h"
#include "base/json.h"
#include "base/json_cursor.h"
#include "base/machine.h"
#include "base/nearest.h"
#include "base/result.h"
#include "base/spin.h"
#include "base/thread_pool.h"
#include "base/utf8.h"
