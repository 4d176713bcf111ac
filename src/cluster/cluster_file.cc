#include "cluster/cluster_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <tuple>

namespace deepinfer {
namespace {

constexpr std::string_view kGroups[] = {"worker", "encode", "prefill", "decode"};

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
    if (flag == "count" || flag == "min" || flag == "max") continue;
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

// How many workers.
Status read_counts(std::string_view name, const toml::table& table, WorkerGroup& group) {
  const auto number = [&](const char* key) { return table.get(key) ? table.get(key)->value<int64_t>().value_or(0) : 0; };
  if (table.get("min") && table.get("max") && number("max") < number("min"))
    return at(name, *table.get("max"), "'max' must not be below 'min'");
  if (table.get("count") && (table.get("min") || table.get("max")))
    return at(name, *table.get("count"), "'count' stands for 'min' and 'max'; only one of both may be there");
  for (const auto& [key, least, most] :
       {std::tuple("count", true, true), std::tuple("min", true, false), std::tuple("max", false, true)}) {
    const toml::node* node = table.get(key);
    if (!node) continue;
    const int64_t workers = node->is_integer() ? node->as_integer()->get() : 0;
    if (workers < 1 || workers > kMaxLocalWorkers)
      return at(name, *node, fmt::format("'{}' must be from 1 to {}", key, kMaxLocalWorkers));
    if (least) group.min = static_cast<int32_t>(workers);
    if (most) group.max = static_cast<int32_t>(workers);
    group.max = std::max(group.max, group.min);
  }
  return {};
}

Status read_group(std::string_view name, std::string_view key, const toml::table& table, ClusterFile& cluster) {
  WorkerGroup group;
  DI_TRY(group.words, words_of(name, table));
  DI_CHECK_OK(read_counts(name, table, group));
  if (key != "worker") {
    group.role = key;
    group.words.insert(group.words.end(), {"--role", group.role});
  }
  cluster.groups.push_back(std::move(group));
  return {};
}

Status read_scale(std::string_view name, const toml::table& table, ClusterFile& cluster) {
  for (const auto& [key, node] : table) {
    const double seconds = node.value<double>().value_or(-1);
    int64_t* const us = key.str() == "window"      ? &cluster.scale.window_us
                        : key.str() == "out_after" ? &cluster.scale.out_after_us
                                                   : nullptr;
    if (us && seconds > 0) {
      *us = static_cast<int64_t>(seconds * 1e6);
    } else if (key.str() == "key" && node.is_string()) {
      cluster.scale_key = node.as_string()->get();
    } else {
      return at(name, node, fmt::format("'{}': [scale] has window and out_after in seconds, and key", key.str()));
    }
  }
  return {};
}

Status read_etcd(std::string_view name, const toml::table& table, ClusterFile& cluster) {
  for (const auto& [key, node] : table) {
    if (key.str() == "endpoints" && node.is_string()) {
      cluster.etcd = node.as_string()->get();
    } else if (key.str() == "start" && node.is_boolean()) {
      cluster.starts_etcd = node.as_boolean()->get();
    } else {
      return at(name, node, fmt::format("'{}': [etcd] has endpoints = \"http://HOST:PORT,...\" or start = true", key.str()));
    }
  }
  return {};
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
    if (!node.is_table()) return at(name, node, fmt::format("'{}' must be a table: [{}]", key.str(), key.str()));
    const toml::table& entries = *node.as_table();
    if (key.str() == "scale") {
      DI_CHECK_OK(read_scale(name, entries, cluster));
    } else if (key.str() == "etcd") {
      DI_CHECK_OK(read_etcd(name, entries, cluster));
    } else if (key.str() == "router") {
      DI_TRY(cluster.router, words_of(name, entries));
    } else if (std::find(std::begin(kGroups), std::end(kGroups), key.str()) != std::end(kGroups)) {
      DI_CHECK_OK(read_group(name, key.str(), entries, cluster));
    } else {
      return at(name, node,
                fmt::format("unknown '{}': there are [router], [worker], [encode], [prefill], [decode], [scale] and [etcd]",
                            key.str()));
    }
  }
  if (cluster.groups.empty()) cluster.groups.emplace_back();
  const bool answers =
      std::any_of(cluster.groups.begin(), cluster.groups.end(), [](const auto& g) { return g.role != "encode"; });
  if (!answers) return invalid_argument(fmt::format("{}: workers of [encode] answer nothing: add [worker] or [decode]", name));
  return cluster;
}

}  // namespace deepinfer
