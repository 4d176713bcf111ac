#include "cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <deque>
#include <vector>

#include "cuda/context.h"
#include "cuda/graphs.h"
#include "cuda/staging.h"

namespace deepinfer {
namespace {

constexpr size_t kStagingBytes = size_t{16} << 20;
// Events of tickets nobody waits for are used again after this many.
constexpr size_t kMostTickets = 1024;

double gigabytes(size_t bytes) { return static_cast<double>(bytes) / 1e9; }

struct OpContext : cuda::GpuContext {
  int index = 0;
};

template <class Params, void (*kRun)(const cuda::GpuContext&, const Params&)>
void call(void* context, const Params& p) {
  const auto& c = *static_cast<const OpContext*>(context);
  (void)cudaSetDevice(c.index);  // the calling thread may be another than before
  kRun(c, p);
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options) : options_(options) {
    context_.index = options.index;
    ops_.context = &context_;
#define DI_OP(name, Params) ops_.name##_fn = call<Params, cuda::run_##name>;
#include "ops/op_list.inc"
#undef DI_OP
    if (options.portable) return;
    ops_.matmul_fn = call<MatmulParams, cuda::run_mma_matmul>;
    ops_.grouped_matmul_fn = call<GroupedMatmulParams, cuda::run_mma_grouped_matmul>;
  }
  ~CudaDevice() override {
    use();
    for (const cudaStream_t stream : {context_.stream, side_}) {
      if (!stream) continue;
      (void)cudaStreamSynchronize(stream);
      (void)cudaStreamDestroy(stream);
    }
    for (const cudaEvent_t event : {parted_, met_}) {
      if (event) (void)cudaEventDestroy(event);
    }
    for (const Mark& mark : marks_) (void)cudaEventDestroy(mark.event);
    for (const cudaEvent_t event : free_) (void)cudaEventDestroy(event);
  }

  cudaError_t create() {
    use();
    for (cudaStream_t* stream : {&context_.stream, &side_}) {
      if (const cudaError_t e = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking)) return e;
    }
    for (cudaEvent_t* event : {&parted_, &met_}) {
      if (const cudaError_t e = cudaEventCreateWithFlags(event, cudaEventDisableTiming)) return e;
    }
    if (const cudaError_t e = cudaDeviceGetAttribute(&context_.multiprocessors, cudaDevAttrMultiProcessorCount, context_.index))
      return e;
    if (const cudaError_t e = cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, context_.index)) return e;
    for (const auto prepare : {cuda::prepare_matmul, cuda::prepare_mma, cuda::prepare_attention, cuda::prepare_select}) {
      if (const cudaError_t e = prepare()) return e;
    }
    return staging_.create(kStagingBytes);
  }

  std::string name() const override { return fmt::format("cuda:{}{}", context_.index, options_.portable ? ":portable" : ""); }
  std::string isa() const override { return options_.portable ? "portable" : fmt::format("sm{}0", major_); }
  int32_t parallelism() const override { return cuda::kScratchRows; }
  bool reads_host_memory() const override { return false; }

  Result<Buffer> allocate(size_t bytes) override {
    if (bytes == 0) return Buffer();
    use();
    void* data = nullptr;
    if (const cudaError_t error = cudaMalloc(&data, bytes)) {
      (void)cudaGetLastError();
      size_t free = 0, total = 0;
      (void)cudaMemGetInfo(&free, &total);
      return exhausted(
          fmt::format("{}: no memory for {:.2f} GB ({}): {:.2f} of {:.2f} GB are free; use a smaller model, --context or batch",
                      name(), gigabytes(bytes), cudaGetErrorName(error), gigabytes(free), gigabytes(total)));
    }
    note("fill_zero", cudaMemsetAsync(data, 0, bytes, context_.stream));
    return Buffer(this, data, bytes);
  }

  Result<Buffer> allocate_on_host(size_t bytes) override {
    if (bytes == 0) return Buffer();
    use();
    void* data = nullptr;
    if (const cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable)) {
      (void)cudaGetLastError();
      const auto pages = static_cast<double>(sysconf(_SC_AVPHYS_PAGES)), page = static_cast<double>(sysconf(_SC_PAGESIZE));
      return exhausted(fmt::format("{}: cannot pin {:.2f} GB of the host's memory ({}): {:.2f} GB are free", name(),
                                   gigabytes(bytes), cudaGetErrorName(error), pages * page / 1e9));
    }
    return Buffer(this, data, bytes);
  }

  void upload(void* to, const void* from, size_t bytes) override {
    use();
    for (size_t at = 0, part; at < bytes; at += part) {
      part = std::min(bytes - at, staging_.piece());
      note("upload",
           staging_.upload(context_.stream, static_cast<uint8_t*>(to) + at, static_cast<const uint8_t*>(from) + at, part));
    }
  }
  void download(void* to, const void* from, size_t bytes) override {
    use();
    for (size_t at = 0, part; at < bytes; at += part) {
      part = std::min(bytes - at, staging_.piece());
      note("download", staging_.download(context_.stream, static_cast<uint8_t*>(to) + at, static_cast<const uint8_t*>(from) + at,
                                         part, tickets_ + 1));
    }
  }
  void copy(void* to, const void* from, size_t bytes) override {
    use();
    if (bytes > 0) note("copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, context_.stream));
  }
  void fill_zero(void* to, size_t bytes) override {
    use();
    if (bytes > 0) note("fill_zero", cudaMemsetAsync(to, 0, bytes, context_.stream));
  }

  const OpTable& ops() const override { return ops_; }

  void replay(std::unique_ptr<Recording>& slot, FunctionRef<void()> fn) override {
    use();
    if (!options_.graphs) return fn();
    if (!slot) slot = std::make_unique<cuda::Graph>();
    note("replay", static_cast<cuda::Graph&>(*slot).run(context_.stream, fn));
  }

  void aside(FunctionRef<void()> fn) override {
    use();
    note("aside", cudaEventRecord(parted_, context_.stream));
    note("aside", cudaStreamWaitEvent(side_, parted_));
    std::swap(context_.stream, side_);
    fn();
    std::swap(context_.stream, side_);
    note("aside", cudaEventRecord(met_, side_));
  }
  void meet() override {
    use();
    note("meet", cudaStreamWaitEvent(context_.stream, met_));
  }

  void host_call(std::function<void()> fn) override {
    use();
    auto* owned = new std::function<void()>(std::move(fn));
    const auto run = [](void* self) {
      const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(self));
      (*body)();
    };
    note("host_call", cudaLaunchHostFunc(context_.stream, run, owned));
  }

  Ticket record() override {
    use();
    note("an operation", cudaGetLastError());
    if (marks_.size() >= kMostTickets) {
      note("record", cudaEventSynchronize(marks_.front().event));
      recycle_front();
    }
    cudaEvent_t event = nullptr;
    if (free_.empty()) {
      note("record", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    } else {
      event = free_.back();
      free_.pop_back();
    }
    cudaStream_t end = context_.stream;
    note("record", staging_.end_of(context_.stream, &end));
    note("record", cudaEventRecord(event, end));
    marks_.push_back({++tickets_, event});
    return tickets_;
  }

  Status wait(Ticket ticket) override {
    use();
    while (!marks_.empty() && marks_.front().ticket <= ticket) {
      if (marks_.front().ticket == ticket || marks_.size() == 1) note("an operation", cudaEventSynchronize(marks_.front().event));
      recycle_front();
    }
    staging_.hand_out(ticket);
    if (failure_.empty()) return {};
    return internal_error(std::exchange(failure_, {}));
  }

  double seconds_of_reads(const void* from, size_t bytes, float* sink, int rounds) {
    use();
    cudaEvent_t begin = nullptr, end = nullptr;
    float ms = 0;
    const bool made = cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess;
    cuda::run_read(context_, from, static_cast<int64_t>(bytes), sink);
    if (made) note("measure", cudaEventRecord(begin, context_.stream));
    for (int i = 0; i < rounds; ++i) cuda::run_read(context_, from, static_cast<int64_t>(bytes), sink);
    if (made) note("measure", cudaEventRecord(end, context_.stream));
    note("measure", cudaStreamSynchronize(context_.stream));
    if (made) note("measure", cudaEventElapsedTime(&ms, begin, end));
    if (begin) (void)cudaEventDestroy(begin);
    if (end) (void)cudaEventDestroy(end);
    return ms / 1e3 / rounds;
  }

 protected:
  // Waits for the work before; buffers are freed at the end of things, not in a step.
  void release(void* data, size_t) override {
    use();
    (void)cudaStreamSynchronize(context_.stream);
    cudaPointerAttributes attributes = {};
    (void)cudaPointerGetAttributes(&attributes, data);
    (void)(attributes.type == cudaMemoryTypeHost ? cudaFreeHost(data) : cudaFree(data));
  }

 private:
  struct Mark {
    Ticket ticket;
    cudaEvent_t event;
  };

  void use() const { (void)cudaSetDevice(context_.index); }

  void note(const char* what, cudaError_t error) {
    if (error == cudaSuccess || !failure_.empty()) return;
    failure_ = fmt::format("{}: {} failed: {} ({})", name(), what, cudaGetErrorString(error), cudaGetErrorName(error));
  }

  void recycle_front() {
    free_.push_back(marks_.front().event);
    marks_.pop_front();
  }

  CudaOptions options_;
  OpContext context_;
  cudaStream_t side_ = nullptr;                   // of aside()
  cudaEvent_t parted_ = nullptr, met_ = nullptr;  // where it began, where it ended
  int major_ = 0;
  OpTable ops_;
  cuda::Staging staging_;
  Ticket tickets_ = 0;
  std::deque<Mark> marks_;
  std::vector<cudaEvent_t> free_;
  std::string failure_;
};

// The driver's answer to "is there a GPU": the runtime is linked in, the driver is looked for now.
Status check_device(int index) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count)) {
    (void)cudaGetLastError();
    return unsupported(
        fmt::format("cuda: no NVIDIA driver that can run this program ({}); use --device cpu", cudaGetErrorString(error)));
  }
  if (index >= 0 && index < count) return {};
  return invalid_argument(fmt::format("cuda:{}: this machine has {} GPU(s), the first is cuda:0", index, count));
}

}  // namespace

Result<std::string> describe_cuda_device(int index) {
  DI_CHECK_OK(check_device(index));
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index)) return internal_error(cudaGetErrorString(error));
  return fmt::format("{}, {:.1f} GB, sm_{}{}", properties.name, gigabytes(properties.totalGlobalMem), properties.major,
                     properties.minor);
}

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options) {
  DI_CHECK_OK(check_device(options.index));
  auto device = std::make_unique<CudaDevice>(options);
  if (const cudaError_t error = device->create()) {
    (void)cudaGetLastError();
    DI_TRY(const std::string text, describe_cuda_device(options.index));
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
      return unsupported(
          fmt::format("cuda:{}: {}: this program has code for sm_90 and sm_100 only; use --device cpu", options.index, text));
    }
    return internal_error(fmt::format("cuda:{}: {}: {}", options.index, text, cudaGetErrorString(error)));
  }
  return std::unique_ptr<Device>(std::move(device));
}

double measure_cuda_read(Device& device) {
  constexpr size_t kBytes = size_t{1} << 30, kSinkBytes = size_t{8} << 20;
  auto* cuda = dynamic_cast<CudaDevice*>(&device);
  if (!cuda) return 0;
  const auto from = device.allocate(kBytes), sink = device.allocate(kSinkBytes);
  if (!from || !sink) return 0;
  const double seconds = cuda->seconds_of_reads(from->as<void>(), kBytes, sink->as<float>(), 10);
  return seconds > 0 ? static_cast<double>(kBytes) / seconds : 0;
}

}  // namespace deepinfer
