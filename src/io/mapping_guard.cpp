#include "io/mapping_guard.h"

#include <unistd.h>
#include <csignal>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "io/foreign_file.h"

namespace halfbyte {
namespace {

// Read by the signal handler: fixed size, no locks. An entry is live while `begin` is not 0; it is written under
// g_mutex, `begin` last. A mapping beyond the table is merely not named in the message.
constexpr size_t kMaxMappings = 1024;
constexpr size_t kMaxPath = 512;
struct Entry {
  std::atomic<uintptr_t> begin{0};
  std::atomic<size_t> size{0};
  char path[kMaxPath] = {};
};
Entry g_entries[kMaxMappings];
std::mutex g_mutex;
std::atomic<void (*)()> g_cleanup{nullptr};

// Keeps an entry for the lifetime of a mapping.
class Registration {
 public:
  explicit Registration(const MappedFile& file) {
    const std::lock_guard lock(g_mutex);
    for (Entry& entry : g_entries) {
      if (entry.begin.load() != 0 || file.bytes().empty()) continue;
      const size_t n = std::min(file.path().size(), kMaxPath - 1);
      std::memcpy(entry.path, file.path().data(), n);
      entry.path[n] = '\0';
      entry.size.store(file.bytes().size());
      entry.begin.store(reinterpret_cast<uintptr_t>(file.bytes().data()));
      entry_ = &entry;
      break;
    }
  }
  ~Registration() {
    const std::lock_guard lock(g_mutex);
    if (entry_ != nullptr) entry_->begin.store(0);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  Entry* entry_ = nullptr;
};

struct Guarded {
  std::shared_ptr<MappedFile> file;
  Registration registration;
  explicit Guarded(std::shared_ptr<MappedFile> f) : file(std::move(f)), registration(*file) {}
};

void write_text(const char* text) {
  // Nothing can be done about a failed write here.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void on_sigbus(int signal, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Entry& entry : g_entries) {
    const uintptr_t begin = entry.begin.load();
    if (begin == 0 || address < begin || address - begin >= entry.size.load()) continue;
    write_text("error: ");
    write_text(entry.path);
    write_text(
        ": the file became shorter, or its disk failed, while it was being read; restore the file and start again\n");
    if (void (*cleanup)() = g_cleanup.load()) cleanup();
    _exit(2);
  }
  std::signal(signal, SIG_DFL);  // returning repeats the access, now with the default action
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> open_guarded(const std::string& path) {
  HB_ASSIGN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
  HB_TRY(refuse_foreign_file(path, first_bytes(file->bytes())));
  auto guarded = std::make_shared<Guarded>(std::move(file));
  const MappedFile* raw = guarded->file.get();
  return std::shared_ptr<const MappedFile>(std::move(guarded), raw);
}

void set_mapping_failure_cleanup(void (*cleanup)()) {
  g_cleanup.store(cleanup);
}

void install_mapping_guard() {
  struct sigaction action = {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace halfbyte
