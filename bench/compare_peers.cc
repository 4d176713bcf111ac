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
constexpr int64_t kSetBytes = int64_t{1} << 30;  // of weights used in turn: no cache keeps them
constexpr int64_t kRows[] = {1, 8, 64, 512};
constexpr int64_t kFewSets = 8;  // for many rows: the time is the multiply units'
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
  const size_t period = 17 * 4096;  // of MXFP4: a scale, then 16 bytes of codes
  for (size_t i = 0; i < std::min(bytes.size(), period); ++i) {
    const auto code = static_cast<uint8_t>(i * 40503 % 251);
    if (t->type == GGML_TYPE_MXFP4) bytes[i] = i % 17 == 0 ? 127 : code;
    if (t->type == GGML_TYPE_BF16) bytes[i] = i % 2 ? 0x3C : code;
    if (t->type == GGML_TYPE_F32) bytes[i] = i % 4 == 3 ? 0x3F : 0;
  }
  for (size_t at = period; at < bytes.size(); at += period)
    std::memcpy(&bytes[at], bytes.data(), std::min(period, bytes.size() - at));
  ggml_backend_tensor_set(t, bytes.data(), 0, bytes.size());
}

// Weights of one shape: as many as fill the set, each used once a run; with `experts`, one table of them, six a row.
struct Case {
  ggml_type type;
  const char* name;
  int64_t n, k, experts;
  bool as_stored;  // not in the order that llama.cpp repacks to
};

ggml_context* context_for(int64_t tensors) {
  const auto count = static_cast<size_t>(tensors);
  return ggml_init({ggml_tensor_overhead() * count + ggml_graph_overhead_custom(count, false), nullptr, true});
}

ggml_tensor* product(ggml_context* in, const Case& c, ggml_tensor* w, ggml_tensor* x, ggml_tensor* ids) {
  return c.experts ? ggml_mul_mat_id(in, w, x, ids) : ggml_mul_mat(in, w, x);
}

// Returns how many experts were chosen at least once.
int64_t choose(ggml_tensor* ids, int64_t experts, uint32_t& word) {
  std::vector<int32_t> chosen(static_cast<size_t>(ggml_nelements(ids)));
  std::vector<bool> seen(static_cast<size_t>(experts));
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto row = chosen.begin() + static_cast<long>(i / 6 * 6), at = chosen.begin() + static_cast<long>(i);
    do *at = static_cast<int32_t>((word = word * 1664525 + 1013904223) >> 8) % static_cast<int32_t>(experts);
    while (std::find(row, at, *at) != at);
    seen[static_cast<size_t>(*at)] = true;
  }
  ggml_backend_tensor_set(ids, chosen.data(), 0, chosen.size() * 4);
  return std::count(seen.begin(), seen.end(), true);
}

void measure_rows(ggml_backend_t backend, const Case& c, const std::vector<ggml_tensor*>& w, int64_t rows) {
  const auto most = static_cast<int64_t>(w.size());
  const int64_t count = c.experts ? (rows > 8 ? 1 : 16) : rows > 8 ? std::min(most, kFewSets) : most;
  ggml_context *inputs = context_for(count + 16), *work = context_for(4 * count + 16);
  ggml_tensor* x = ggml_new_tensor_3d(inputs, GGML_TYPE_F32, c.k, c.experts ? 1 : rows, c.experts ? rows : 1);
  std::vector<ggml_tensor*> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(c.experts ? ggml_new_tensor_2d(inputs, GGML_TYPE_I32, 6, rows) : nullptr);
  ggml_backend_buffer_t room = ggml_backend_alloc_ctx_tensors(inputs, backend);
  fill(x);
  uint32_t word = 1;
  int64_t touched = c.experts ? 0 : count;
  ggml_cgraph* graph = ggml_new_graph_custom(work, static_cast<size_t>(2 * count + 16), false);
  for (int64_t i = 0; i < count; ++i) {
    ggml_tensor* id = ids[static_cast<size_t>(i)];
    if (id) touched += choose(id, c.experts, word);
    ggml_build_forward_expand(graph, product(work, c, w[static_cast<size_t>(c.experts ? 0 : i)], x, id));
  }
  ggml_gallocr_t plan = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
  ggml_gallocr_alloc_graph(plan, graph);
  ggml_backend_graph_compute(backend, graph);
  const double took = best_of(rows > 8 ? 1 : 2, [&] { ggml_backend_graph_compute(backend, graph); });
  const double read = static_cast<double>(ggml_row_size(c.type, c.k)) * static_cast<double>(c.n * touched);
  const double flops = 2.0 * static_cast<double>(count * c.n * c.k * rows * (c.experts ? 6 : 1));
  const bool by_bytes = rows == 1 || c.experts;
  print_row(std::string(c.as_stored ? "stored/" : "ggml/") + c.name + "/" + std::to_string(c.n) + "x" + std::to_string(c.k) +
                "/" + std::to_string(rows),
            (by_bytes ? read : flops) / took / 1e9, by_bytes ? "GB/s" : "GFLOP/s");
  ggml_gallocr_free(plan);
  ggml_backend_buffer_free(room);
  ggml_free(inputs);
  ggml_free(work);
}

void measure_ggml(const Case& c) {
  ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(backend, kThreads);
  const int64_t count = c.experts ? 1 : kSetBytes / (static_cast<int64_t>(ggml_row_size(c.type, c.k)) * c.n);
  ggml_context *weights = context_for(count + 16), *probe = context_for(16);
  std::vector<ggml_tensor*> w;
  for (int64_t i = 0; i < count; ++i) w.push_back(ggml_new_tensor_3d(weights, c.type, c.k, c.n, c.experts ? c.experts : 1));
  ggml_tensor* x = ggml_new_tensor_3d(probe, GGML_TYPE_F32, c.k, 1, 1);
  ggml_tensor* first = product(probe, c, w[0], x, ggml_new_tensor_2d(probe, GGML_TYPE_I32, 6, 1));
  ggml_backend_buffer_t room = ggml_backend_alloc_ctx_tensors_from_buft(
      weights, c.as_stored ? ggml_backend_get_default_buffer_type(backend) : buffer_for(backend, first));
  for (ggml_tensor* t : w) fill(t);
  for (const int64_t rows : kRows) measure_rows(backend, c, w, rows);
  ggml_backend_buffer_free(room);
  ggml_free(weights);
  ggml_free(probe);
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
  const int64_t count = rows > 8 ? kFewSets : kSetBytes / (2 * n * k);
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
  measure_ggml({GGML_TYPE_BF16, "bf16", 4608, 5120, 0, false});
#ifdef WITH_DNNL
  for (const int64_t rows : kRows) measure_dnnl(4608, 5120, rows);
#endif
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{2304, 5120}, {5120, 2304}}) {
    for (const bool as_stored : {false, true}) measure_ggml({GGML_TYPE_MXFP4, "fp4", n, k, 0, as_stored});
    for (const bool as_stored : {false, true}) measure_ggml({GGML_TYPE_MXFP4, "experts", n, k, 384, as_stored});
  }
  std::printf("]}\n");
}
