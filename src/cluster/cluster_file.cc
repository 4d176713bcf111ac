#include "cluster/cluster_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

namespace deepinfer {
namespace {

Error at(std::string_view name, const toml::node& node, const std::string& message) {
  return invalid_argument(fmt::format("{}:{}: {}", name, node.source().begin.line, message));
}

Result<std::string> text_of(std::string_view name, std::string_view key, const toml::node& node) {
  if (node.is_string()) return node.as_string()->get();
  if (node.is_integer()) return fmt::format("{}", node.as_integer()->get());
  if (node.is_floating_point()) return fmt::format("{}", node.as_floating_point()->get());
  return at(name, node, fmt::format("'{}' must be a text, a number, true or false", key));
}

Result<std::vector<std::string>> words_of(std::string_view name, const toml::table& table) {
  std::vector<std::string> words;
  for (const auto& [key, node] : table) {
    std::string flag(key.str());
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (flag == "count") continue;
    if (node.is_boolean()) {
      if (node.as_boolean()->get()) words.push_back("--" + flag);
      continue;
    }
    DI_TRY(const std::string text, text_of(name, key.str(), node));
    words.push_back("--" + flag);
    words.push_back(text);
  }
  return words;
}

}  // namespace

Result<ClusterFile> parse_cluster_file(std::string_view text, std::string_view name) {
  toml::table table;
  try {
    table = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return invalid_argument(fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
  ClusterFile cluster;
  for (const auto& [key, node] : table) {
    const bool is_router = key.str() == "router", is_worker = key.str() == "worker";
    if (!is_router && !is_worker) return at(name, node, fmt::format("unknown '{}': there are [router] and [worker]", key.str()));
    if (!node.is_table()) return at(name, node, fmt::format("'{}' must be a table: [{}]", key.str(), key.str()));
    DI_TRY(auto words, words_of(name, *node.as_table()));
    (is_router ? cluster.router : cluster.worker) = std::move(words);
    const toml::node* count = node.as_table()->get("count");
    if (!count) continue;
    const int64_t workers = count->is_integer() ? count->as_integer()->get() : 0;
    if (is_router || workers < 1 || workers > kMaxLocalWorkers)
      return at(name, *count, fmt::format("'count' is of [worker] and from 1 to {}", kMaxLocalWorkers));
    cluster.num_workers = static_cast<int32_t>(workers);
  }
  return cluster;
}

}  // namespace deepinfer
