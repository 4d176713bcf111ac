// deepinfer doctor [--url U]: checks this machine or a server.
#include "lab/doctor.h"

#include "apps/commands.h"
#include "apps/terminal.h"

namespace deepinfer {
namespace {

struct DoctorSettings {
  DoctorOptions options;
  float timeout = 120;
  bool json = false;
  void visit(FieldVisitor visit) {
    visit({.name = "url", .target = &options.url, .help = "a server to check instead of this machine", .value = "URL"});
    visit({.name = "key", .target = &options.key, .help = "API key for it", .value = "KEY"});
    visit({.name = "ca-file",
           .target = &options.ca_file,
           .help = "certificates to trust instead of the system's",
           .value = "FILE"});
    visit({.name = "served-model", .target = &options.model, .help = "model to ask for [the first it lists]", .value = "NAME"});
    visit({.name = "timeout", .target = &timeout, .help = "without a byte", .value = "SECONDS", .min = 0.1, .max = 1e6});
    visit(
        {.name = "device", .target = &options.device, .help = "of this machine: cpu, cpu:KERNELS or cuda:N", .value = "DEVICE"});
    visit({.name = "json", .target = &json, .help = "one JSON object"});
  }
};

class DoctorCommand final : public Command {
 public:
  std::string name() const override { return "doctor"; }
  std::string summary() const override { return "check this machine, or any OpenAI-compatible server"; }
  std::string examples() const override { return "  deepinfer doctor\n  deepinfer doctor --url http://127.0.0.1:8080"; }
  std::vector<Field> fields() override { return fields_of(settings_); }

  Result<int> run() override {
    DoctorOptions& options = settings_.options;
    options.timeout_seconds = static_cast<double>(settings_.timeout);
    while (options.url.ends_with('/')) options.url.pop_back();
    if (options.url.ends_with("/v1")) options.url.resize(options.url.size() - 3);
    const std::vector<DoctorRow> rows = options.url.empty() ? check_machine(options.device) : check_server(options);
    DI_CHECK_OK(write_out(settings_.json ? doctor_json(rows).dump() + "\n" : doctor_table(rows)));
    if (any_failed(rows)) return Error{ErrorCode::kInternal, "at least one check failed"};
    return kExitOk;
  }

 private:
  DoctorSettings settings_;
};

}  // namespace

std::unique_ptr<Command> make_doctor_command() { return std::make_unique<DoctorCommand>(); }

}  // namespace deepinfer
