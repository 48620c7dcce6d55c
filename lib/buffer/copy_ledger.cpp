// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/copy_ledger.hpp"

#include <cstring>
#include <mutex>

#include "lib/base/never_destroyed.hpp"

namespace linkspan {

// Threads may end after static destruction has begun.
struct CopyLedger::Registry {
  std::mutex mutex;
  IntrusiveList<CopyLedger> live;
  CopyCounts retired;  // of threads that have ended

  static Registry& instance() noexcept {
    static NeverDestroyed<Registry> registry;
    return registry.get();
  }
};

std::string_view to_string(CopyPlace place) noexcept {
  switch (place) {
    case CopyPlace::framing: return "framing";
    case CopyPlace::marshal: return "marshal";
    case CopyPlace::write: return "write";
    case CopyPlace::receive: return "receive";
    case CopyPlace::receive_into: return "receive_into";
    case CopyPlace::below_threshold: return "below_threshold";
    case CopyPlace::unshare: return "unshare";
    case CopyPlace::file: return "file";
    case CopyPlace::compact: return "compact";
    case CopyPlace::store: return "store";
    case CopyPlace::collected: return "collected";
    case CopyPlace::user: return "user";
  }
  return "unknown";
}

CopyLedger::CopyLedger() noexcept {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  registry.live.push_back(*this);
}

CopyLedger::~CopyLedger() {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  registry.retired += counts();
  unlink();
}

CopyLedger& CopyLedger::this_thread() noexcept {
  // The model makes finding it cheap in the shared library too.
  [[gnu::tls_model("initial-exec")]] static thread_local CopyLedger ledger;
  return ledger;
}

CopyCounts CopyLedger::counts() const noexcept {
  CopyCounts counts;
  for (std::size_t i = 0; i < kCopyPlaces; ++i) counts.bytes[i] = bytes_[i].get();
  return counts;
}

CopyCounts CopyLedger::total() noexcept {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  CopyCounts sum = registry.retired;
  for (CopyLedger* ledger = registry.live.first(); ledger != nullptr; ledger = registry.live.next(*ledger)) {
    sum += ledger->counts();
  }
  return sum;
}

void copy_bytes(void* to, const void* from, std::size_t size, CopyPlace place) noexcept {
  if (size == 0) return;
  count_copied(size, place);
  std::memcpy(to, from, size);
}

void count_copied(std::size_t size, CopyPlace place) noexcept {
  CopyLedger::this_thread().bytes_[static_cast<std::size_t>(place)].add(size);
}

}  // namespace linkspan
