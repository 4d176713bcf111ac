// lab - what people use to look into, check and measure the product: the golden runner, benches and their figures, evaluation,
// the line editor of the chat. Enters every room below it; nothing enters lab but the program itself.
#pragma once

#include "lab/eval/report.h"
#include "lab/eval/runner.h"
#include "lab/eval/suite.h"
#include "lab/eval/target.h"
#include "lab/figures.h"
#include "lab/golden.h"
#include "lab/golden_counts.h"
#include "lab/inspect.h"
#include "lab/line_editor.h"
#include "lab/unpacked_folder.h"
