// apps/environment.h - the environment variables that users of DeepSeek's DeepInfer know, as aliases of flags.
//
// Flags win over them. This is the only reader of the environment in the product.
#pragma once

#include <string>
#include <vector>

namespace deepinfer {

struct EnvironmentSetting {
  std::string variable;
  std::string field;  // of the command's fields; "" when this build has nothing it could change
  std::string value;
};

struct Environment {
  std::vector<EnvironmentSetting> settings;
  std::string isa;                  // DEEPINFER_ISA: the kernels of a CPU device, whoever named that
  std::vector<std::string> notes;   // for stderr: unknown variables, variables without effect
  std::vector<std::string> errors;  // values that cannot be met
};
Environment read_environment();

// $XDG_CACHE_HOME/deepinfer, or ~/.cache/deepinfer, or "" without a home.
std::string cache_directory();
// $XDG_STATE_HOME/deepinfer, or ~/.local/state/deepinfer, or "" without a home.
std::string state_directory();

}  // namespace deepinfer
