// server/settings.h - every setting of `serve`, once: flags, configuration file, --print-config and documents come from here.
//
// Threads: a value; frozen once the server is open.
#pragma once

#include <string>

#include "base/fields.h"
#include "host/settings.h"

namespace deepinfer {

struct ServeSettings {
  HostSettings host;

  std::string config;
  bool print_config = false;

  std::string address = "127.0.0.1";
  int32_t port = 8080;
  std::string tls_certificate, tls_key;
  std::string cors = "local";

  std::string keys;
  std::string served_model_name;
  std::string profile = "open";
  std::string thinking = "on";
  std::string missing_reasoning = "fill";
  std::string web_search = "profile";
  int32_t max_tokens_thinking = 393216, max_tokens_plain = 393216;
  bool fetch_images = false;

  int32_t batch = 0;
  int32_t queue = 0;
  float request_timeout = 0;
  float drain_timeout = 30;
  float stall_limit = 30;
  float target_first_token = 2;
  int32_t max_connections = 4096;
  int32_t max_body_mb = 48;
  int32_t max_file_mb = 200;
  float header_timeout = 10;
  float idle_timeout = 75;
  float write_timeout = 30;
  float keep_alive = 5;
  float start_timeout = 600;
  int32_t max_unsent_kb = 1024;
  int32_t max_stored_mb = 64;

  std::string access_log = "-";
  std::string data;

  void visit(FieldVisitor visit) {
    visit_server(visit);
    host.visit(visit);
  }
  // All but what belongs to a model in this process.
  void visit_server(FieldVisitor visit) {
    visit({.name = "config", .target = &config, .help = "settings from a TOML file; flags win over it", .value = "F.toml"});
    visit({.name = "print-config", .target = &print_config, .help = "print all settings as a configuration file and leave"});
    visit_network(visit);
    visit_service(visit);
    visit_requests(visit);
    visit_limits(visit);
  }

 private:
  void visit_network(FieldVisitor visit);
  void visit_service(FieldVisitor visit);
  void visit_requests(FieldVisitor visit);
  void visit_limits(FieldVisitor visit);
};

// The settings as a commented configuration file; `all` false leaves out what a file cannot set.
std::string config_text(const std::vector<Field>& fields);

// Sets fields from a TOML file: keys are the names of flags. An unknown key is an Error with the nearest known one and its line.
Status apply_config_file(const std::string& path, const std::vector<Field>& fields);
Status apply_config_text(const std::string& text, const std::string& name, const std::vector<Field>& fields);

}  // namespace deepinfer
