// bench/compare_peers.cc - ggml's products of MXFP4 and BF16, and oneDNN's of BF16, at this model's shapes; one JSON object, rows
// as `deepinfer bench ops` has them. Built by compare_llama_cpp.sh, outside the tree.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#ifdef WITH_DNNL
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace {

const int kThreads = static_cast<int>(std::thread::hardware_concurrency());
constexpr int64_t kSetBytes = int64_t{1} << 30;
bool first_row = true;

void print_row(const std::string& name, double value, const char* unit) {
  std::printf("%s{\"name\": \"%s\", \"value\": %.4f, \"unit\": \"%s\"}", first_row ? "" : ",\n", name.c_str(), value, unit);
  first_row = false;
}

double best_of(int times, const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

// The buffer that llama.cpp would put a weight of this type in: a repacked one where the processor has use for it.
ggml_backend_buffer_type_t buffer_for(ggml_backend_t backend, ggml_tensor* op) {
  ggml_backend_dev_t device = ggml_backend_get_device(backend);
  auto get = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  for (ggml_backend_buffer_type_t* type = get ? get(device) : nullptr; type && *type; ++type) {
    ggml_backend_buffer_t room = ggml_backend_buft_alloc_buffer(*type, 0);
    op->src[0]->buffer = room;
    const bool supported = ggml_backend_dev_supports_op(device, op);
    op->src[0]->buffer = nullptr;
    ggml_backend_buffer_free(room);
    if (supported) return *type;
  }
  return ggml_backend_get_default_buffer_type(backend);
}

void fill(ggml_tensor* t) {
  std::vector<uint8_t> bytes(ggml_nbytes(t));
  if (t->type == GGML_TYPE_MXFP4) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = i % 17 == 0 ? 127 : static_cast<uint8_t>(i * 40503 % 251);
  } else if (t->type == GGML_TYPE_BF16) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = i % 2 ? 0x3C : static_cast<uint8_t>(i * 40503 % 251);
  } else {
    std::vector<float> values(bytes.size() / 4, 0.5f);
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  ggml_backend_tensor_set(t, bytes.data(), 0, bytes.size());
}

// `experts` = 0: as many weights as fill the set, each once. Else one product of routed experts, six a row.
void measure_ggml(ggml_type type, const char* name, int64_t n, int64_t k, int64_t rows, int64_t experts) {
  ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(backend, kThreads);
  const int64_t bytes = static_cast<int64_t>(ggml_row_size(type, k)) * n;
  const int64_t count = experts    ? (rows > 8 ? 1 : 4)
                        : rows > 8 ? std::max<int64_t>(1, kSetBytes / bytes / 4 / rows)
                                   : kSetBytes / bytes;
  const ggml_init_params params = {ggml_tensor_overhead() * static_cast<size_t>(4 * count + 16) +
                                       ggml_graph_overhead_custom(static_cast<size_t>(2 * count + 16), false),
                                   nullptr, true};
  ggml_context *weights = ggml_init(params), *inputs = ggml_init(params), *work = ggml_init(params);
  std::vector<ggml_tensor*> w, ids, y;
  ggml_tensor* x =
      experts ? ggml_new_tensor_3d(inputs, GGML_TYPE_F32, k, 1, rows) : ggml_new_tensor_2d(inputs, GGML_TYPE_F32, k, rows);
  const auto weight = [&] {
    return experts ? ggml_new_tensor_3d(weights, type, k, n, experts) : ggml_new_tensor_2d(weights, type, k, n);
  };
  for (int64_t i = 0; i < count; ++i) {
    if (i == 0 || !experts) w.push_back(weight());
    if (experts) ids.push_back(ggml_new_tensor_2d(inputs, GGML_TYPE_I32, 6, rows));
    y.push_back(experts ? ggml_mul_mat_id(work, w[0], x, ids.back()) : ggml_mul_mat(work, w.back(), x));
  }
  ggml_backend_buffer_t room = ggml_backend_alloc_ctx_tensors_from_buft(weights, buffer_for(backend, y[0]));
  ggml_backend_buffer_t input_room = ggml_backend_alloc_ctx_tensors(inputs, backend);
  for (ggml_tensor* t : w) fill(t);
  fill(x);
  uint32_t word = 1;
  std::vector<int32_t> chosen(static_cast<size_t>(6 * rows));
  int64_t touched = 0;
  for (ggml_tensor* t : ids) {
    std::vector<bool> seen(static_cast<size_t>(experts));
    for (size_t i = 0; i < chosen.size(); ++i) {
      const size_t row = i / 6 * 6;
      do chosen[i] = static_cast<int32_t>((word = word * 1664525 + 1013904223) >> 8) % static_cast<int32_t>(experts);
      while (std::find(chosen.begin() + static_cast<long>(row), chosen.begin() + static_cast<long>(i), chosen[i]) !=
             chosen.begin() + static_cast<long>(i));
      touched += !seen[static_cast<size_t>(chosen[i])];
      seen[static_cast<size_t>(chosen[i])] = true;
    }
    ggml_backend_tensor_set(t, chosen.data(), 0, chosen.size() * 4);
  }
  ggml_cgraph* graph = ggml_new_graph_custom(work, static_cast<size_t>(2 * count + 16), false);
  for (ggml_tensor* t : y) ggml_build_forward_expand(graph, t);
  ggml_gallocr_t plan = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
  ggml_gallocr_alloc_graph(plan, graph);
  ggml_backend_graph_compute(backend, graph);
  const double took = best_of(rows > 8 ? 1 : 2, [&] { ggml_backend_graph_compute(backend, graph); });
  const double read = static_cast<double>(bytes) * static_cast<double>(experts ? touched : count);
  const double flops = 2.0 * static_cast<double>(count * n * k * rows * (experts ? 6 : 1));
  const bool by_bytes = experts || rows == 1;
  print_row(std::string("ggml/") + name + "/" + std::to_string(n) + "x" + std::to_string(k) + "/" + std::to_string(rows),
            (by_bytes ? read : flops) / took / 1e9, by_bytes ? "GB/s" : "GFLOP/s");
  ggml_gallocr_free(plan);
  ggml_backend_buffer_free(room);
  ggml_backend_buffer_free(input_room);
  for (ggml_context* context : {weights, inputs, work}) ggml_free(context);
  ggml_backend_free(backend);
}

#ifdef WITH_DNNL
void measure_dnnl(int64_t n, int64_t k, int64_t rows) {
  using namespace dnnl;
  engine cpu(engine::kind::cpu, 0);
  stream order(cpu);
  const auto bf16 = memory::data_type::bf16;
  const memory::desc x_like({rows, k}, bf16, memory::format_tag::ab), any({k, n}, bf16, memory::format_tag::any),
      y_like({rows, n}, memory::data_type::f32, memory::format_tag::ab), plain({k, n}, bf16, memory::format_tag::ba);
#if DNNL_VERSION_MAJOR >= 3
  const matmul::primitive_desc kind(cpu, x_like, any, y_like);
#else
  const matmul::primitive_desc kind(matmul::desc(x_like, any, y_like), cpu);
#endif
  const matmul product(kind);
  const int64_t count = rows > 8 ? 2 : std::max<int64_t>(1, kSetBytes / (2 * n * k));
  memory x(x_like, cpu), y(y_like, cpu), stored(plain, cpu);
  const auto fill_with = [](const memory& m, size_t values) {
    auto* at = static_cast<uint16_t*>(m.get_data_handle());
    for (size_t i = 0; i < values; ++i) at[i] = static_cast<uint16_t>(0x3C00 | i * 40503 % 112);
  };
  fill_with(x, static_cast<size_t>(rows * k));
  fill_with(stored, static_cast<size_t>(n * k));
  std::vector<memory> weights;
  for (int64_t i = 0; i < count; ++i) {
    weights.emplace_back(kind.weights_desc(), cpu);
    reorder(stored, weights.back()).execute(order, stored, weights.back());
  }
  order.wait();
  const auto all = [&] {
    for (memory& w : weights) product.execute(order, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}});
    order.wait();
  };
  all();
  const double took = best_of(2, all),
               amount = static_cast<double>(count) * static_cast<double>(2 * n * k) * static_cast<double>(rows);
  print_row("dnnl/bf16/" + std::to_string(n) + "x" + std::to_string(k) + "/" + std::to_string(rows), amount / took / 1e9,
            rows == 1 ? "GB/s" : "GFLOP/s");
}
#endif

}  // namespace

int main() {
  std::printf("{\"rows\": [\n");
  for (const int64_t rows : {1, 8, 64, 512}) {
    measure_ggml(GGML_TYPE_BF16, "bf16", 4608, 5120, rows, 0);
#ifdef WITH_DNNL
    measure_dnnl(4608, 5120, rows);
#endif
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{2304, 5120}, {5120, 2304}}) {
      measure_ggml(GGML_TYPE_MXFP4, "fp4", n, k, rows, 0);
      measure_ggml(GGML_TYPE_MXFP4, "experts", n, k, rows, 384);
    }
  }
  std::printf("]}\n");
}
