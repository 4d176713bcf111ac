#include "apps/commands.h"

namespace deepinfer {

CommandList make_commands() {
  CommandList list;
  list.push_back(make_run_command());
  list.push_back(make_batch_command());
  list.push_back(make_serve_command());
  list.push_back(make_route_command());
  list.push_back(make_up_command());
  list.push_back(make_pull_command());
  list.push_back(make_render_command());
  list.push_back(make_parse_command());
  list.push_back(make_tokenize_command());
  list.push_back(make_detokenize_command());
  list.push_back(make_inspect_command());
  list.push_back(make_golden_command());
  list.push_back(make_bench_command());
  list.push_back(make_verify_command());
  list.push_back(make_cache_command());
  list.push_back(make_plan_command());
  list.push_back(make_doctor_command());
  list.push_back(make_eval_command());
  return list;
}

}  // namespace deepinfer
