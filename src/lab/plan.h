// lab/plan.h - before anything is loaded or bought: does a model fit, how fast will it be, what shares the work, what does it
// cost.
//
// The arithmetic is cost/; here are a model's sizes (config.json is enough), this machine's limits measured in about a second,
// and the words. Expected figures are the limits times what kernels reach of them; both are printed.
// Threads: one.
//
//   DI_TRY(const PlanReport plan, make_plan({.device = "h200", .gpus = 64, .streams = 4096}));
//   fmt::print("{}", plan.text);
#pragma once

#include <string>

#include "base/result.h"
#include "lab/figures.h"

namespace deepinfer {

struct PlanOptions {
  std::string model;            // folder, random:SPEC or release
  std::string device = "this";  // this, cpu:KERNELS, a card of cost/hardware.h or a file that describes one
  int32_t gpus = 1, threads = 0;
  int64_t context = 0;  // tokens a conversation may have; 0 = prompt and answer
  int32_t streams = 1;
  int32_t prompt = 2048, answer = 512;
  float cached = 0;  // share of the prompts, in percent
  int32_t drafts = 0;
  float accepted = 1;
  float per_user = 0;       // tokens a second that each should get; > 0 chooses the streams
  float price = 0;          // of a GPU or machine for an hour
  float expert_memory = 0;  // GB
  float host_memory = 0;    // GB beside the GPUs of a machine; 0 = not told
  float disk = 0;           // GB/s the checkpoint is read with; 0 = measured where it lies here
  bool measure = true, explain = false;
};

struct PlanReport {
  FigureReport figures{"plan"};
  std::string text;
  std::string problem;  // what is short, "" = it fits
};
Result<PlanReport> make_plan(const PlanOptions& options);

}  // namespace deepinfer
