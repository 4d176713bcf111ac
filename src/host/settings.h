// host/settings.h - which model runs, on what, with how much room: the flags every command with a model has.
#pragma once

#include <string>

#include "base/fields.h"
#include "core/types.h"
#include "engine/engine.h"

namespace deepinfer {

struct HostSettings {
  std::string model;  // "" = the shipped model
  std::string device = "cpu";
  int32_t threads = 0;
  int32_t ranks = 1;
  float expert_memory = 0;
  int64_t context = 0;
  std::string replay = "decoder";
  int32_t keep_tokens = 0;
  int32_t snapshot_every = 0;
  std::string store;  // "" = where the program keeps one, if it does
  float store_size = 0;
  float store_memory = 0;
  std::string store_key_file;
  std::string spec = "auto";
  int32_t spec_tokens = 5;
  std::string spec_schedule = "sync";
  int32_t spec_lag = 2;
  std::string spec_verify = "coupled";

  void visit(FieldVisitor visit) {
    visit({.name = "model",
           .target = &model,
           .help = "checkpoint folder, scripted:FILE or random:SPEC [the shipped model]",
           .value = "DIR",
           .letter = 'm'});
    visit({.name = "device", .target = &device, .help = "where it runs: cpu or cuda:N", .value = "DEVICE"});
    visit({.name = "threads",
           .target = &threads,
           .help = "compute threads, 0 = all processors",
           .value = "N",
           .min = 0,
           .max = 1024});
    visit({.name = "ranks",
           .target = &ranks,
           .help = "parts of the threads that each run whole sequences and a share of the experts; changes speed, not answers",
           .value = "N",
           .min = 1,
           .max = kMaxRanks});
    visit({.name = "expert-memory",
           .target = &expert_memory,
           .help = "memory for routed experts on a CPU, those used most stay; 0 = for all, or what is free if that is less",
           .value = "GB",
           .min = 0,
           .max = 1e6});
    visit({.name = "context",
           .target = &context,
           .help = "tokens of one conversation, 0 = 8192 or what the model holds",
           .value = "N",
           .min = 0,
           .max = 1 << 30});
    visit({.name = "replay", .target = &replay, .help = "bounded replay of prompts", .choices = {"off", "decoder", "full"}});
    visit({.name = "keep-tokens",
           .target = &keep_tokens,
           .help = "suffix the decoder layers see with replay, 0 = the window",
           .value = "N",
           .min = 0,
           .max = 1 << 30});
    visit({.name = "snapshot-every",
           .target = &snapshot_every,
           .help = "tokens of a prompt between states kept for others that leave it there, 0 = at ends and branches only",
           .value = "N",
           .min = 0,
           .max = 1 << 30});
    visit({.name = "store",
           .target = &store,
           .help = "folder in which KV pages outlive the process, or off [serve: in the XDG cache folder; else off]",
           .value = "DIR"});
    visit({.name = "store-size",
           .target = &store_size,
           .help = "limit of that folder, 0 = 10 or a tenth of what is free there",
           .value = "GB",
           .min = 0,
           .max = 1e6});
    visit({.name = "store-memory",
           .target = &store_memory,
           .help = "host memory in front of that folder, 0 = a tenth of what there is beside a device with memory of its own, "
                   "else none",
           .value = "GB",
           .min = 0,
           .max = 1e6});
    visit({.name = "store-key-file",
           .target = &store_key_file,
           .help = "file of 32 bytes or 64 hexadecimal digits: what the store holds is encrypted with it (AES-256-GCM)",
           .value = "FILE"});
    visit({.name = "spec",
           .target = &spec,
           .help = "speculation with the model's drafter; auto stops where it does not pay",
           .choices = {"off", "on", "auto"}});
    visit({.name = "spec-tokens",
           .target = &spec_tokens,
           .help = "drafts verified per sequence and step",
           .value = "N",
           .min = 0,
           .max = kMaxDraft});
    visit({.name = "spec-schedule",
           .target = &spec_schedule,
           .help = "how many drafts are verified: all, by confidence, by confidences of steps before",
           .choices = {"fixed", "sync", "async"}});
    visit({.name = "spec-lag",
           .target = &spec_lag,
           .help = "steps by which the confidences of schedule async are old",
           .value = "N",
           .min = 1,
           .max = 2});
    visit({.name = "spec-verify",
           .target = &spec_verify,
           .help = "drafts stand if they are the token drawn anyway, or by chance, with the same distribution but other bytes",
           .choices = {"coupled", "rejection"}});
  }
};

SpeculationOptions speculation_options(const HostSettings& settings);

Result<ReplayMode> parse_replay_mode(const std::string& name);

}  // namespace deepinfer
