// deepinfer cache: what a server's prefix cache did for a request, and what lies in the folder of a KV store.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "apps/cache_store.h"
#include "apps/commands.h"
#include "apps/terminal.h"
#include "base/json.h"
#include "base/nearest.h"
#include "net/http_client.h"

namespace deepinfer {
namespace {

const std::array<std::string, 5> kKinds = {"why", "ls", "stat", "verify", "drop"};

struct CacheSettings {
  std::string url = "http://127.0.0.1:8080", key, ca_file;
  CacheStoreSettings store;
  bool json = false;
  void visit(FieldVisitor visit) {
    visit({.name = "url", .target = &url, .help = "the server", .value = "URL"});
    visit({.name = "key", .target = &key, .help = "API key for it", .value = "KEY"});
    visit({.name = "ca-file", .target = &ca_file, .help = "certificates to trust instead of the system's", .value = "FILE"});
    visit({.name = "store", .target = &store.folder, .help = "folder of the KV store [in the XDG cache folder]", .value = "DIR"});
    visit({.name = "store-key-file",
           .target = &store.key_file,
           .help = "key of an encrypted store, as serve got it: to verify what it says, to drop by --prefix",
           .value = "FILE"});
    visit({.name = "tenant",
           .target = &store.tenant,
           .help = "drop this tenant's only: 16 digits as stat shows them, anonymous, or the name of a key of --keys",
           .value = "TENANT"});
    visit({.name = "keys", .target = &store.keys, .help = "key file that --tenant is a name of", .value = "FILE"});
    visit({.name = "class",
           .target = &store.retention,
           .help = "drop this class only: session, agent, chat or pinned",
           .value = "CLASS"});
    visit({.name = "prefix",
           .target = &store.prefix,
           .help = "drop what begins with this text only, a prompt or its beginning as deepinfer render prints it",
           .value = "FILE"});
    visit({.name = "model",
           .target = &store.model,
           .help = "whose tokenizer reads --prefix [the shipped model]",
           .value = "DIR",
           .letter = 'm'});
    visit({.name = "json", .target = &json, .help = "one JSON object"});
  }
};

std::string line(const char* name, const std::string& value) { return fmt::format("{:<12}{}\n", name, value); }

std::string in_words(const Json& why) {
  const auto number = [&](const char* name) { return why.at(name).is_number() ? why.at(name).number_text() : "?"; };
  const auto text = [&](const char* name) { return why.at(name).is_string() ? why.at(name).as_string() : ""; };
  std::string out = line("request", text("request_id"));
  out += line("served",
              fmt::format("{} of {} prompt tokens from the cache, {} of them from the store, {} run again",
                          number("cached_tokens"), number("prompt_tokens"), number("loaded_tokens"), number("replayed_tokens")));
  std::string reason = text("reason");
  const bool changed = why.find("first_different") != nullptr;
  if (changed) reason += fmt::format(": token {} is the first that differs", number("first_different"));
  if (why.find("message")) reason += fmt::format(", in messages[{}]", number("message"));
  out += line("why", reason);
  for (const char* side : {"before", "here", "there"}) {
    if (why.find(side)) out += line(side, why.at(side).dump());
  }
  if (why.find("hint")) out += line("hint", fmt::format("{}: {}", text("hint"), text("advice")));
  return out;
}

class CacheCommand final : public Command {
 public:
  std::string name() const override { return "cache"; }
  std::string summary() const override { return "look into the KV store; why a prompt was not served from it"; }
  std::string examples() const override {
    return "  deepinfer cache ls\n  deepinfer cache stat --json\n  deepinfer cache verify --store DIR\n"
           "  deepinfer cache drop --tenant alice --keys keys.txt\n  deepinfer cache drop --prefix prompt.txt\n"
           "  deepinfer cache why req-5f0c6a1e-12\n  deepinfer cache why req-5f0c6a1e-12 --url http://127.0.0.1:8080 --json";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override {
    return {{"WORDS", "ls, stat, verify, drop; or why and the x-request-id of an answer", &words_, 1, 2}};
  }

  Result<int> run() override {
    if (std::find(kKinds.begin(), kKinds.end(), words_[0]) == kKinds.end()) {
      return invalid_argument(
          fmt::format("cache {}: known are {}{}", words_[0], fmt::join(kKinds, ", "), did_you_mean(words_[0], kKinds)));
    }
    if (words_[0] == kKinds[0]) return why();
    if (words_.size() > 1) return invalid_argument(fmt::format("cache {} takes no '{}'", words_[0], words_[1]));
    settings_.store.json = settings_.json;
    return look_into_store(words_[0], settings_.store);
  }

 private:
  Result<int> why() {
    if (words_.size() < 2) return invalid_argument("cache why needs the x-request-id of an answer; see deepinfer cache --help");
    std::string base = settings_.url;
    while (base.ends_with('/')) base.pop_back();
    HttpCall call{.url = fmt::format("{}/v1/cache/why/{}", base, words_[1])};
    if (!settings_.key.empty()) call.headers.set("authorization", "Bearer " + settings_.key);
    DI_TRY(const HttpReply reply, HttpClient({.ca_file = settings_.ca_file}).send(call));
    const Result<Json> body = Json::parse(reply.body);
    if (reply.status != 200) {
      const Json message = body ? body->at("error").at("message") : Json();
      return Error{reply.status == 404 ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                   fmt::format("{}: {} {}", base, reply.status, message.is_string() ? message.as_string() : "")};
    }
    if (!body) return body.error();
    return finish_with(write_out(settings_.json ? body->dump() + "\n" : in_words(*body)));
  }

  CacheSettings settings_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_cache_command() { return std::make_unique<CacheCommand>(); }

}  // namespace deepinfer
