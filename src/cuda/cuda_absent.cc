// What stands behind cuda_device.h in a program built without CUDA.
#include "cuda/cuda_device.h"

namespace deepinfer {

namespace {
Error absent() { return unsupported("cuda: this program was built without CUDA (nvcc was not found); use --device cpu"); }
}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions&) { return absent(); }
Result<std::string> describe_cuda_device(int) { return absent(); }
double measure_cuda_read(Device&) { return 0; }

}  // namespace deepinfer
