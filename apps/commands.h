// apps/commands.h - the makers of all commands; apps/commands.cc lists them.
#pragma once

#include "apps/command.h"

namespace deepinfer {

std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_batch_command();
std::unique_ptr<Command> make_render_command();
std::unique_ptr<Command> make_parse_command();
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_detokenize_command();
std::unique_ptr<Command> make_inspect_command();
std::unique_ptr<Command> make_golden_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_verify_command();
std::unique_ptr<Command> make_serve_command();
std::unique_ptr<Command> make_route_command();
std::unique_ptr<Command> make_up_command();
std::unique_ptr<Command> make_pull_command();
std::unique_ptr<Command> make_cache_command();
std::unique_ptr<Command> make_doctor_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_eval_command();

}  // namespace deepinfer
