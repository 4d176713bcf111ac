#include "server/settings.h"

#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/nearest.h"

namespace deepinfer {

void ServeSettings::visit_network(FieldVisitor visit) {
  visit({.name = "host", .target = &address, .help = "address to listen on; 0.0.0.0 = every one", .value = "ADDRESS"});
  visit({.name = "port", .target = &port, .help = "port to listen on, 0 = any free one", .value = "N", .min = 0, .max = 65535});
  visit({.name = "tls-certificate",
         .target = &tls_certificate,
         .help = "certificate chain in PEM form; turns TLS on",
         .value = "FILE"});
  visit({.name = "tls-key", .target = &tls_key, .help = "private key of the certificate", .value = "FILE"});
  visit({.name = "cors",
         .target = &cors,
         .help = "web pages that may call: local (of this machine), off, *, or origins separated by commas",
         .value = "ORIGINS"});
}

void ServeSettings::visit_service(FieldVisitor visit) {
  visit({.name = "keys",
         .target = &keys,
         .help = "file of API keys (hashed); every route but health then needs one",
         .value = "FILE"});
  visit({.name = "served-model-name",
         .target = &served_model_name,
         .help = "names the model answers to, separated by commas; the first is shown [the model's]",
         .value = "NAMES"});
  visit({.name = "profile", .target = &profile, .help = "how requests are understood", .choices = {"open", "official"}});
  visit({.name = "thinking",
         .target = &thinking,
         .help = "whether answers think when the request does not say",
         .choices = {"on", "off"}});
  visit({.name = "fetch-images",
         .target = &fetch_images,
         .help = "fetch pictures behind https links of requests; never from private addresses"});
  visit({.name = "access-log",
         .target = &access_log,
         .help = "one JSON line a request: a file, - = standard error, off",
         .value = "FILE"});
  visit({.name = "data",
         .target = &data,
         .help = "folder of uploaded files and batches [in the XDG state folder]",
         .value = "DIR"});
}

void ServeSettings::visit_requests(FieldVisitor visit) {
  visit({.name = "missing-reasoning",
         .target = &missing_reasoning,
         .help = "earlier turns without their reasoning, while thinking",
         .choices = {"fill", "refuse"}});
  visit({.name = "web-search",
         .target = &web_search,
         .help = "hosted web search among the tools; profile = Messages as the profile says, Responses drops it",
         .choices = {"profile", "drop", "refuse"}});
  for (const bool thinks : {true, false}) {
    visit({.name = thinks ? "max-tokens-thinking" : "max-tokens-plain",
           .target = thinks ? &max_tokens_thinking : &max_tokens_plain,
           .help = thinks ? "most a request may ask for while thinking" : "most a request may ask for without thinking",
           .value = "N",
           .min = 1,
           .max = 393216});
  }
}

void ServeSettings::visit_limits(FieldVisitor visit) {
  visit({.name = "batch",
         .target = &batch,
         .help = "requests that run at once, 0 = the engine's default",
         .value = "N",
         .min = 0,
         .max = 4096});
  visit({.name = "queue",
         .target = &queue,
         .help = "requests that wait beyond those, 0 = the engine's default",
         .value = "N",
         .min = 0,
         .max = 1 << 20});
  visit({.name = "request-timeout",
         .target = &request_timeout,
         .help = "longest time of one answer, 0 = none",
         .value = "SECONDS",
         .min = 0,
         .max = 1e7});
  visit({.name = "drain-timeout",
         .target = &drain_timeout,
         .help = "how long SIGTERM lets answers finish",
         .value = "SECONDS",
         .min = 0,
         .max = 1e6});
  visit({.name = "stall-limit",
         .target = &stall_limit,
         .help = "not ready when no step finished for so long",
         .value = "SECONDS",
         .min = 0.1,
         .max = 1e6});
  visit({.name = "target-first-token",
         .target = &target_first_token,
         .help = "a prompt should not wait longer; /scale measures against it",
         .value = "SECONDS",
         .min = 0.001,
         .max = 1e6});
  visit({.name = "max-connections",
         .target = &max_connections,
         .help = "open connections",
         .value = "N",
         .min = 1,
         .max = 1 << 20});
  visit({.name = "max-body-mb",
         .target = &max_body_mb,
         .help = "largest request body, also when decompressed",
         .value = "N",
         .min = 1,
         .max = 1024});
  visit({.name = "max-file-mb", .target = &max_file_mb, .help = "largest uploaded file", .value = "N", .min = 1, .max = 1024});
  visit({.name = "header-timeout",
         .target = &header_timeout,
         .help = "for the headers of a request",
         .value = "SECONDS",
         .min = 0.1,
         .max = 1e6});
  visit({.name = "idle-timeout",
         .target = &idle_timeout,
         .help = "between two requests of a connection",
         .value = "SECONDS",
         .min = 0.1,
         .max = 1e6});
  visit({.name = "write-timeout",
         .target = &write_timeout,
         .help = "for a client that takes no byte of its answer",
         .value = "SECONDS",
         .min = 0.1,
         .max = 1e6});
  visit({.name = "keep-alive",
         .target = &keep_alive,
         .help = "silence of a stream before a sign of life; whole answers begin with blank lines after six times that",
         .value = "SECONDS",
         .min = 0.1,
         .max = 1e6});
  visit({.name = "start-timeout",
         .target = &start_timeout,
         .help = "for the first token of an answer (profile official)",
         .value = "SECONDS",
         .min = 0.1,
         .max = 1e6});
  visit({.name = "max-unsent-kb",
         .target = &max_unsent_kb,
         .help = "of a streamed answer; a slower reader is closed",
         .value = "N",
         .min = 4,
         .max = 1 << 20});
  visit({.name = "max-stored-mb",
         .target = &max_stored_mb,
         .help = "kept responses (previous_response_id); the least recently used go first, all after a day",
         .value = "N",
         .min = 1,
         .max = 1 << 16});
}

namespace {

bool is_settable(const Field& field) { return field.name != "config" && field.name != "print-config"; }

// The value as TOML writes it.
std::string toml_value(const Field& field) {
  if (const auto* flag = std::get_if<bool*>(&field.target)) return **flag ? "true" : "false";
  if (!std::holds_alternative<std::string*>(field.target)) return field_text(field);
  std::string out;
  append_json_string(out, field_text(field));  // a basic string of TOML
  return out;
}

Status at(const std::string& name, const toml::source_region& place, const std::string& message) {
  return invalid_argument(fmt::format("{}:{}: {}", name, place.begin.line, message));
}

Status apply_entry(const std::string& name, std::string key, const toml::node& node, const std::vector<Field>& fields) {
  std::replace(key.begin(), key.end(), '_', '-');
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == key && is_settable(field); });
  if (found == fields.end()) {
    std::vector<std::string> names;
    for (const Field& field : fields) {
      if (is_settable(field)) names.push_back(field.name);
    }
    return at(name, node.source(), fmt::format("unknown setting '{}'{}", key, did_you_mean(key, names)));
  }
  std::string text;
  if (node.is_string()) {
    text = node.as_string()->get();
  } else if (node.is_integer()) {
    text = fmt::format("{}", node.as_integer()->get());
  } else if (node.is_floating_point()) {
    text = fmt::format("{}", node.as_floating_point()->get());
  } else if (node.is_boolean()) {
    text = node.as_boolean()->get() ? "on" : "off";
  } else {
    return at(name, node.source(), fmt::format("'{}' must be a text, a number, true or false", key));
  }
  if (const Status status = set_field(*found, text); !status) return at(name, node.source(), status.error().message);
  return {};
}

}  // namespace

std::string config_text(const std::vector<Field>& fields) {
  std::string out = "# Settings of deepinfer serve: deepinfer serve --config THIS_FILE. Flags win over it.\n";
  for (const Field& field : fields) {
    if (!is_settable(field)) continue;
    std::string choices;
    for (const std::string& choice : field.choices) choices += (choices.empty() ? ": " : " | ") + choice;
    out += fmt::format("\n# {}{}{}\n{} = {}\n", field.help, choices, field.value.empty() ? "" : fmt::format(" ({})", field.value),
                       field.name, toml_value(field));
  }
  return out;
}

Status apply_config_text(const std::string& text, const std::string& name, const std::vector<Field>& fields) {
  toml::table table;
  try {
    table = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return invalid_argument(fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
  for (const auto& [key, node] : table) DI_CHECK_OK(apply_entry(name, std::string(key.str()), node, fields));
  return {};
}

Status apply_config_file(const std::string& path, const std::vector<Field>& fields) {
  DI_TRY(const std::string text, read_file(path));
  return apply_config_text(text, path, fields);
}

}  // namespace deepinfer
