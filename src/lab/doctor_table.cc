#include <fmt/format.h>

#include "cpu/cpu_device.h"
#include "host/host.h"
#include "host/open_device.h"
#include "host/ring_reads.h"
#include "host/shipped_files.h"
#include "lab/doctor.h"
#include "lab/figures.h"
#include "net/side_lane.h"

namespace deepinfer {

namespace {

using Verdict = DoctorRow::Verdict;

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kFailed: return "failed";
    case Verdict::kAbsent: return "absent";
  }
  return "";
}

}  // namespace

std::vector<DoctorRow> check_machine(const std::string& device) {
  std::vector<DoctorRow> rows;
  const Json machine = machine_description();
  rows.push_back({"processor", Verdict::kOk, machine.at("cpu").is_string() ? machine.at("cpu").as_string() : ""});
  rows.push_back({"processors", Verdict::kOk, machine.at("processors").dump()});
  const auto memory = machine.at("memory_bytes").to_int64("memory_bytes");
  const double gigabytes = memory ? static_cast<double>(*memory) / (1 << 30) : 0;
  rows.push_back({"memory", gigabytes >= 1 ? Verdict::kOk : Verdict::kFailed, fmt::format("{:.1f} GB", gigabytes)});
  std::string runs = cpu_kernels_of(device);
  for (const CpuKernelsInfo& kernels : list_cpu_kernels()) {
    if (kernels.supported && runs.empty()) runs = kernels.isa;
    rows.push_back({"kernels " + kernels.isa, kernels.supported ? Verdict::kOk : Verdict::kAbsent,
                    (kernels.isa == runs ? "runs; needs " : "needs ") + kernels.why});
  }
  const auto ucx = side_lane_version();
  rows.push_back({"UCX", ucx ? Verdict::kOk : Verdict::kAbsent, ucx ? *ucx : ucx.error().message + "; pages go by TCP"});
  const bool ring = open_ring_reads() != nullptr;
  rows.push_back({"io_uring", ring ? Verdict::kOk : Verdict::kAbsent,
                  ring ? "" : "the system or its container refuses it; experts larger than memory are read page by page"});
  const std::string shipped = find_shipped("models/tiny-v41");
  rows.push_back(
      {"shipped model", shipped.empty() ? Verdict::kFailed : Verdict::kOk, shipped.empty() ? "not beside the program" : ""});
  if (shipped.empty()) return rows;
  const auto host = Host::open({.device = device}, {.max_batch = 1});
  rows.push_back(
      {"shipped model opens", host ? Verdict::kOk : Verdict::kFailed, host ? (*host)->model().name() : host.error().message});
  return rows;
}

std::string doctor_table(const std::vector<DoctorRow>& rows) {
  std::string out;
  for (const DoctorRow& row : rows) out += fmt::format("{:<30} {:<7} {}\n", row.name, verdict_name(row.verdict), row.detail);
  return out;
}

Json doctor_json(const std::vector<DoctorRow>& rows) {
  Json list = Json::array();
  for (const DoctorRow& row : rows)
    list.push_back(Json::object({{"name", row.name}, {"result", verdict_name(row.verdict)}, {"detail", row.detail}}));
  return Json::object({{"command", "doctor"}, {"rows", std::move(list)}});
}

bool any_failed(const std::vector<DoctorRow>& rows) {
  for (const DoctorRow& row : rows) {
    if (row.verdict == Verdict::kFailed) return true;
  }
  return false;
}

}  // namespace deepinfer
