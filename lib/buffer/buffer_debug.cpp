// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The registry of live buffers: a record for each storage and for each of its holders. Only in builds with
// -Dbuffer_debug=true.
#include "linkspan/buffer/buffer_debug.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "lib/base/never_destroyed.hpp"
#include "lib/buffer/buffer_registry.hpp"
#include "lib/buffer/call_stack.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan {
namespace detail {
namespace {

struct Shard;

// So many of a shard's records stay as they were after their end, so that a second end can tell of the first.
constexpr std::size_t kRemembered = 256;
constexpr std::size_t kReportedBuffers = 100;
constexpr std::size_t kReportedHolders = 16;
constexpr std::size_t kLabelBytes = 32;

// Set in a holder's name by its destructor.
constexpr std::uint64_t kDestroyed = std::uint64_t{1} << 63;

std::atomic<std::uint64_t> g_next_id{1};

std::uint64_t next_id() noexcept {
  return g_next_id.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// A holder has the shard of its storage. All but the atomic members are guarded by the shard's mutex.
struct HolderRecord : ListNode<> {
  explicit HolderRecord(Shard& shard_in) noexcept : shard(shard_in) {}

  Shard& shard;
  std::atomic<std::uint64_t> life{0};  // odd while it holds
  std::uint64_t id = 0;
  StorageRecord* storage = nullptr;
  std::uint64_t storage_id = 0;  // to notice that the record is another storage's by now
  std::atomic<const std::byte*> data{nullptr};
  std::atomic<std::size_t> size{0};
  std::array<char, kLabelBytes> label{};
  CallStack made;
  CallStack ended;
};

struct StorageRecord : ListNode<> {
  explicit StorageRecord(Shard& shard_in) noexcept : shard(shard_in) {}

  Shard& shard;
  std::uint64_t id = 0;
  bool alive = false;
  bool taken = false;  // somebody has the ownership that it was made with
  BufferKind kind = BufferKind::other;
  std::size_t capacity = 0;
  IntrusiveList<HolderRecord> holders;
  CallStack allocated;
  CallStack released;
};

namespace {

// Records are made when no ended one is old enough to be used again, and are never freed.
template <class Record>
class RecordStore {
 public:
  Record& take(Shard& shard) noexcept {
    if (ended_count_ > kRemembered) {
      --ended_count_;
      return ended_.pop_front();
    }
    void* memory = std::malloc(sizeof(Record));
    LINKSPAN_ASSERT(memory != nullptr, "there is memory for the records of buffers");
    return *::new (memory) Record(shard);
  }
  void give_back(Record& record) noexcept {
    record.unlink();
    ended_.push_back(record);
    ++ended_count_;
  }

 private:
  IntrusiveList<Record> ended_;  // oldest first
  std::size_t ended_count_ = 0;
};

struct alignas(64) Shard {
  std::mutex mutex;
  IntrusiveList<StorageRecord> alive;
  IntrusiveList<StorageRecord> idle;  // released; an allocator keeps the storage for another life
  RecordStore<StorageRecord> storages;
  RecordStore<HolderRecord> holders;
};

// Buffers may live until the very end.
std::array<Shard, 16>& shards() noexcept {
  static NeverDestroyed<std::array<Shard, 16>> all;
  return all.get();
}

// Threads spread over the shards; a buffer stays in the one that its allocating thread had.
Shard& shard_of_this_thread() noexcept {
  static std::atomic<std::size_t> threads{0};
  static thread_local const std::size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return shards()[number % shards().size()];
}

const char* to_string(BufferKind kind) noexcept {
  switch (kind) {
    case BufferKind::heap: return "heap";
    case BufferKind::pool: return "pool";
    case BufferKind::page: return "page";
    case BufferKind::adopted: return "adopted";
    case BufferKind::borrowed: return "borrowed";
    case BufferKind::mapped: return "mapped";
    case BufferKind::other: break;
  }
  return "other";
}

// What becomes of other memory is its owner's business, and pages are unmapped.
bool is_filled(BufferKind kind) noexcept {
  return kind == BufferKind::heap || kind == BufferKind::pool;
}

void fill_released(const StorageRecord& record, const std::byte* data) noexcept {
  if (!is_filled(record.kind)) return;
  std::memset(const_cast<std::byte*>(data), static_cast<int>(kReleasedByte), record.capacity);
}

// The first byte that was written to since it was filled, or -1.
std::ptrdiff_t find_written(const StorageRecord& record, const std::byte* data) noexcept {
  if (!is_filled(record.kind) || record.capacity == 0) return -1;
  if (*data == kReleasedByte && std::memcmp(data, data + 1, record.capacity - 1) == 0) return -1;
  return std::find_if(data, data + record.capacity, [](std::byte byte) { return byte != kReleasedByte; }) -
         data;
}

// --- reports: with the shard locked -----------------------------------------------------------------------

std::string address_to_string(const void* address) {
  std::array<char, 32> text{};
  static_cast<void>(std::snprintf(text.data(), text.size(), "%p", address));
  return text.data();
}

std::string describe(const HolderRecord& holder) {
  const bool alive = holder.life.load(std::memory_order_relaxed) % 2 != 0;
  std::string text = "  holder " + std::to_string(holder.id);
  if (holder.label[0] != '\0') text += std::string(" \"") + holder.label.data() + "\"";
  text += ": " + std::to_string(holder.size.load(std::memory_order_relaxed)) + " bytes at " +
          address_to_string(holder.data.load(std::memory_order_relaxed)) + ", made " +
          holder.made.to_string();
  if (!alive) text += "   it let go " + holder.ended.to_string();
  return text;
}

std::string describe(StorageRecord& storage) {
  std::string text = "buffer " + std::to_string(storage.id) + ": " + to_string(storage.kind) + ", " +
                     std::to_string(storage.capacity) + " bytes, allocated " + storage.allocated.to_string();
  if (!storage.alive) text += "  released " + storage.released.to_string();
  std::size_t count = 0;
  for (HolderRecord* holder = storage.holders.first(); holder != nullptr;
       holder = storage.holders.next(*holder)) {
    if (++count <= kReportedHolders) text += describe(*holder);
  }
  if (count > kReportedHolders) {
    text += "  and " + std::to_string(count - kReportedHolders) + " holders more\n";
  }
  return text;
}

std::string describe(HolderName name) {
  if (name.record == nullptr) return "it holds no counted memory\n";
  const HolderRecord& holder = *name.record;
  const std::uint64_t life = name.life & ~kDestroyed;
  const std::uint64_t now = holder.life.load(std::memory_order_relaxed);
  if (now > life + 1) return "it let go too long ago to be remembered\n";
  std::string text = describe(holder);
  if (holder.storage->id != holder.storage_id) {
    text += "its buffer was released too long ago to be remembered\n";
  } else {
    text += describe(*holder.storage);
  }
  return text;
}

[[noreturn]] void abort_with(const char* rule, const CallStack& here, const std::string& details) noexcept {
  std::fprintf(stderr, "linkspan: broken rule: %s\nfound %s%s", rule, here.to_string().c_str(),
               details.c_str());
  std::fflush(stderr);
  std::abort();
}

// Of the buffers with at least this id.
std::size_t count_from(std::uint64_t id) noexcept {
  std::size_t count = 0;
  for (Shard& shard : shards()) {
    const std::lock_guard lock(shard.mutex);
    for (StorageRecord* at = shard.alive.first(); at != nullptr; at = shard.alive.next(*at)) {
      if (at->id >= id) ++count;
    }
  }
  return count;
}

std::string report_from(std::uint64_t id) {
  std::vector<std::uint64_t> ids;
  for (Shard& shard : shards()) {
    const std::lock_guard lock(shard.mutex);
    for (StorageRecord* at = shard.alive.first(); at != nullptr; at = shard.alive.next(*at)) {
      if (at->id >= id) ids.push_back(at->id);
    }
  }
  std::ranges::sort(ids);
  const std::size_t count = ids.size();
  if (count > kReportedBuffers) ids.resize(kReportedBuffers);

  std::vector<std::pair<std::uint64_t, std::string>> texts;
  for (Shard& shard : shards()) {
    const std::lock_guard lock(shard.mutex);
    for (StorageRecord* at = shard.alive.first(); at != nullptr; at = shard.alive.next(*at)) {
      if (std::ranges::binary_search(ids, at->id)) texts.emplace_back(at->id, describe(*at));
    }
  }
  std::ranges::sort(texts);
  std::string report = std::to_string(count) + (count == 1 ? " buffer is alive\n" : " buffers are alive\n");
  for (const auto& [unused, text] : texts) report += text;
  if (count > texts.size()) report += "and " + std::to_string(count - texts.size()) + " buffers more\n";
  return report;
}

// After all destructors of static objects. The log takes lines.
[[gnu::destructor]] void report_at_exit() noexcept {
  if (std::getenv("LINKSPAN_BUFFER_LEAKS") == nullptr || count_from(0) == 0) return;
  const std::string report = report_from(0);
  for (std::string_view rest = report; !rest.empty();) {
    const std::size_t line = rest.find('\n');
    log(LogLevel::error, "buffer", rest.substr(0, line));
    rest.remove_prefix(line + 1);
  }
}

}  // namespace

void broken_rule(const char* rule, HolderName holder) noexcept {
  const CallStack here = CallStack::here();
  if (holder.record == nullptr) abort_with(rule, here, describe(holder));
  const std::lock_guard lock(holder.record->shard.mutex);
  abort_with(rule, here, describe(holder));
}

// --- storages ---------------------------------------------------------------------------------------------

StorageTrace::StorageTrace(BufferKind kind, std::size_t capacity) noexcept {
  const CallStack here = CallStack::here();
  Shard& shard = shard_of_this_thread();
  const std::lock_guard lock(shard.mutex);
  record_ = &shard.storages.take(shard);
  record_->id = next_id();
  record_->alive = true;
  record_->taken = false;
  record_->kind = kind;
  record_->capacity = capacity;
  record_->allocated = here;
  shard.alive.push_back(*record_);
}

StorageTrace::~StorageTrace() {
  Shard& shard = record_->shard;
  const std::lock_guard lock(shard.mutex);
  if (!record_->holders.empty()) {
    abort_with("a storage that is held is not destroyed", CallStack::here(), describe(*record_));
  }
  if (std::exchange(record_->alive, false)) record_->released = CallStack::here();
  shard.storages.give_back(*record_);
}

void StorageTrace::end(const std::byte* data) noexcept {
  const CallStack here = CallStack::here();
  fill_released(*record_, data);
  const std::lock_guard lock(record_->shard.mutex);
  record_->alive = false;
  record_->released = here;
  record_->unlink();
  record_->shard.idle.push_back(*record_);
}

void StorageTrace::revive(const std::byte* data) noexcept {
  const CallStack here = CallStack::here();
  const std::lock_guard lock(record_->shard.mutex);
  if (record_->alive) abort_with("only a released storage is revived", here, describe(*record_));
  if (const std::ptrdiff_t written = find_written(*record_, data); written >= 0) {
    abort_with("memory is not written to after its release", here,
               "byte " + std::to_string(written) + " was changed\n" + describe(*record_));
  }
  record_->id = next_id();
  record_->alive = true;
  record_->taken = false;
  record_->allocated = here;
  record_->unlink();
  record_->shard.alive.push_back(*record_);
}

// --- holders ----------------------------------------------------------------------------------------------

namespace {

// With the shard locked.
HolderName begin_holder(StorageRecord& storage, const CallStack& here) noexcept {
  HolderRecord& holder = storage.shard.holders.take(storage.shard);
  holder.id = next_id();
  holder.storage = &storage;
  holder.storage_id = storage.id;
  holder.label[0] = '\0';
  holder.made = here;
  storage.holders.push_back(holder);
  return {&holder, holder.life.fetch_add(1, std::memory_order_relaxed) + 1};
}

}  // namespace

HolderTrace::HolderTrace(const StorageTrace& storage) noexcept {
  const CallStack here = CallStack::here();
  StorageRecord& record = *storage.record_;
  const std::lock_guard lock(record.shard.mutex);
  if (!record.alive || std::exchange(record.taken, true)) {
    abort_with("a storage's one ownership is taken once", here, describe(record));
  }
  name_ = begin_holder(record, here);
}

HolderTrace::HolderTrace(const HolderTrace& other) noexcept {
  other.check();
  if (other.name_.record == nullptr) return;
  const CallStack here = CallStack::here();
  const HolderRecord& from = *other.name_.record;
  const std::lock_guard lock(from.shard.mutex);
  name_ = begin_holder(*from.storage, here);
  shows(from.data.load(std::memory_order_relaxed), from.size.load(std::memory_order_relaxed));
}

HolderTrace::HolderTrace(HolderTrace&& other) noexcept {
  other.check();
  name_ = std::exchange(other.name_, {});
}

// The write is volatile because nobody may look at what it changes: who does breaks the rule that it reports.
HolderTrace::~HolderTrace() {
  volatile std::uint64_t& life = name_.life;
  life = name_.life | kDestroyed;
}

void HolderTrace::swap(HolderTrace& other) noexcept {
  check();
  other.check();
  std::swap(name_, other.name_);
}

void HolderTrace::end() noexcept {
  if (name_.record == nullptr) {
    check();
    return;
  }
  const CallStack here = CallStack::here();
  HolderRecord& holder = *name_.record;
  const std::lock_guard lock(holder.shard.mutex);
  if (holder.life.load(std::memory_order_relaxed) != name_.life) {
    abort_with("what holds a buffer lets go once, and is not copied by its bytes", here, describe(name_));
  }
  holder.ended = here;
  holder.life.store(name_.life + 1, std::memory_order_relaxed);
  holder.shard.holders.give_back(holder);
}

void HolderTrace::check() const noexcept {
  const bool holds = name_.record == nullptr
                         ? (name_.life & kDestroyed) == 0
                         : name_.record->life.load(std::memory_order_relaxed) == name_.life;
  if (!holds) broken_rule("what holds a buffer is not used after it has let go", name_);
}

void HolderTrace::shows(const std::byte* data, std::size_t size) const noexcept {
  check();
  if (name_.record == nullptr) return;
  name_.record->data.store(data, std::memory_order_relaxed);
  name_.record->size.store(size, std::memory_order_relaxed);
}

void HolderTrace::set_kind(BufferKind kind) const noexcept {
  if (name_.record == nullptr) return;
  const std::lock_guard lock(name_.record->shard.mutex);
  name_.record->storage->kind = kind;
}

BufferKind HolderTrace::kind() const noexcept {
  if (name_.record == nullptr) return BufferKind::other;
  const std::lock_guard lock(name_.record->shard.mutex);
  return name_.record->storage->kind;
}

}  // namespace detail

std::size_t live_buffer_count() noexcept {
  return detail::count_from(0);
}

std::string live_buffers() {
  return detail::report_from(0);
}

void label_buffer(const Slice& slice, std::string_view label) noexcept {
  const detail::HolderName name = detail::TraceAccess::trace(slice).name();
  if (name.record == nullptr) return;
  const std::lock_guard lock(name.record->shard.mutex);
  name.record->label.fill('\0');
  label.substr(0, detail::kLabelBytes - 1).copy(name.record->label.data(), detail::kLabelBytes - 1);
}

BufferScope::BufferScope() noexcept : begin_(detail::next_id()) {}

BufferScope::~BufferScope() {
  if (live_count() != 0) {
    detail::abort_with("no buffer outlives its BufferScope", detail::CallStack::here(), live());
  }
}

std::size_t BufferScope::live_count() const noexcept {
  return detail::count_from(begin_);
}

std::string BufferScope::live() const {
  return detail::report_from(begin_);
}

}  // namespace linkspan
