// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// One OffHeapMap, read in three ways: as slices over its pages (ours), as a fresh copy of each value, and as
// a view of a buffer of the thread's that its next read overwrites.
#include <cstring>
#include <memory>

#include "linkspan/store/off_heap_map.hpp"
#include "perf/store/workload.hpp"

namespace {

using namespace linkspan;
using namespace linkspan::perf;

class Stored {
 public:
  explicit Stored(OffHeapMap& map) : map_(map) {}
  bool put(std::string_view key, std::string_view value) { return !map_.put(key, value); }

 protected:
  OffHeapMap& map_;
};

class Pinned : public Stored {
 public:
  using Stored::Stored;
  template <class F>
  bool get(std::string_view key, F f) {
    const std::optional<StoredValue> value = map_.get(key);
    if (!value) return false;
    for (const Slice& slice : value->bytes) f(slice.view().data(), slice.size());
    return true;
  }
};

void copy_out(const Chain& from, char* to) {
  for (const Slice& slice : from) {
    std::memcpy(to, slice.data(), slice.size());
    to += slice.size();
  }
}

class FreshCopy : public Stored {
 public:
  using Stored::Stored;
  template <class F>
  bool get(std::string_view key, F f) {
    const std::optional<StoredValue> value = map_.get(key);
    if (!value) return false;
    const std::unique_ptr<char[]> copy(new char[value->bytes.size()]);  // not initialized
    copy_out(value->bytes, copy.get());
    f(copy.get(), value->bytes.size());
    return true;
  }
};

class Scratch : public Stored {
 public:
  using Stored::Stored;
  template <class F>
  bool get(std::string_view key, F f) {
    static thread_local const std::unique_ptr<char[]> buffer(new char[kValueBytes]);
    const std::optional<StoredValue> value = map_.get(key);
    if (!value) return false;
    copy_out(value->bytes, buffer.get());
    f(buffer.get(), value->bytes.size());
    return true;
  }
};

void run_round(const StoreOptions& options) {
  OffHeapMapOptions map_options;
  // Each value once, what threads are about to put, and the entries.
  map_options.max_bytes = (options.entries + 256) * (kValueBytes + 1024);
  map_options.shards = 128;
  const auto map = OffHeapMap::open(map_options).value_or_throw();
  Pinned pinned(*map);
  fill(pinned, options);
  FreshCopy fresh(*map);
  Scratch scratch(*map);
  measure_reads("fresh copy", fresh, options);
  measure_reads("scratch view", scratch, options);
  measure_reads("linkspan", pinned, options);
  measure("linkspan", pinned, Mix::write_only, false, options);
}

}  // namespace

int main(int argc, char** argv) {
  return run_store_benchmark(argc, argv, run_round);
}
