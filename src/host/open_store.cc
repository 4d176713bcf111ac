#include "host/open_store.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "base/scratch_folder.h"

namespace deepinfer {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMostBytes = 10'000'000'000;
// On a disk that is full there is still a store: its pages are read, and writing is tried again.
constexpr int64_t kLeastBytes = 64'000'000;
constexpr int64_t kShareOfFree = 10, kShareOfMemory = 10;
constexpr double kGigabyte = 1e9;

// Of what is free where the folder is, or will be; where that is unknown as much as is ever taken.
int64_t free_bytes(const fs::path& wanted) {
  std::error_code status;
  fs::path folder = fs::absolute(wanted, status);
  while (!fs::exists(folder, status) && folder.has_parent_path() && folder != folder.parent_path()) folder = folder.parent_path();
  const fs::space_info space = fs::space(folder, status);
  return status ? kMostBytes * kShareOfFree : static_cast<int64_t>(space.available);
}

std::string hex(const StoreFingerprint& fingerprint) {
  std::string out;
  for (const uint8_t byte : fingerprint) out += fmt::format("{:02x}", byte);
  return out;
}

std::string program_identity() {
  const auto program = MappedFile::open("/proc/self/exe");
  if (!program) return "unknown";
  return hex(store_fingerprint({reinterpret_cast<const char*>(program->bytes().data()), program->bytes().size()}));
}

// Names, sizes and dates: reading hundreds of gigabytes at each start is no way to notice that one tensor changed.
std::string files_identity(const std::string& model) {
  std::string path = model.starts_with("scripted:") ? model.substr(9) : model;
  std::vector<std::string> lines;
  const auto add = [&](const fs::path& file) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) return;
    lines.push_back(
        fmt::format("{} {} {}.{}", file.filename().string(), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec));
  };
  std::error_code status;
  if (fs::is_directory(path, status)) {
    for (fs::directory_iterator it(path, status), end; !status && it != end; it.increment(status)) add(it->path());
  } else {
    add(path);
  }
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}\n{}", model.starts_with("random:") ? model : "", fmt::join(lines, "\n"));
}

}  // namespace

Result<std::unique_ptr<HostStore>> HostStore::open(const HostSettings& settings, const std::string& standard_folder,
                                                   const std::string& model) {
  std::unique_ptr<HostStore> store;
  if (settings.store == "off" || (settings.store.empty() && standard_folder.empty())) return store;
  store = std::make_unique<HostStore>();
  store->was_asked_for_ = !settings.store.empty();
  store->folder_ = store->was_asked_for_ ? settings.store : standard_folder;
  // It may be there later: until then its pages are misses, and who named it is told.
  const Status usable = store->was_asked_for_ ? make_writable_folder(store->folder_) : Status();
  if (!usable) store->trouble_ = usable.error().message;
  store->limit_bytes_ = static_cast<int64_t>(static_cast<double>(settings.store_size) * kGigabyte);
  if (store->limit_bytes_ == 0)
    store->limit_bytes_ = std::clamp(free_bytes(store->folder_) / kShareOfFree, kLeastBytes, kMostBytes);
  store->memory_bytes_ = static_cast<int64_t>(static_cast<double>(settings.store_memory) * kGigabyte);
  store->identity_ = program_identity() + "\n" + files_identity(model);
  if (!settings.store_key_file.empty()) {
    DI_TRY(store->cipher_, StoreCipher::open(settings.store_key_file));
  }
  if (getentropy(&store->seed_, sizeof(store->seed_)) != 0) return io_error("the system gives no random seed for the KV store");
  return store;
}

StoreTierOptions HostStore::options(const std::string& fingerprint, bool beside_device) {
  StoreTierOptions out;
  out.disk = &disk_;
  const int64_t tenth = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE) / kShareOfMemory;
  const int64_t memory = memory_bytes_ > 0 ? memory_bytes_ : beside_device ? tenth : 0;
  if (memory > 0) out.disk = &memory_.emplace(disk_, memory);
  out.date = &date_;
  out.folder = folder_;
  out.fingerprint = fingerprint + "\n" + identity_;
  out.limit_bytes = limit_bytes_;
  out.writer_seed = seed_;
  out.cipher = cipher_;
  return out;
}

std::string HostStore::summary() const {
  if (!trouble_.empty())
    return fmt::format("{}; the KV store keeps nothing until that is mended, --store off for none", trouble_);
  return fmt::format("KV store in {}, at most {:.1f} GB; --store off for none", folder_,
                     static_cast<double>(limit_bytes_) / kGigabyte);
}

}  // namespace deepinfer
