// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// RocksDB as it comes, and tuned as its documentation has it for point look-ups of values that are in memory:
// a block cache for all of them, no compression, no log, memory maps, values pinned in the cache.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>

#include <filesystem>
#include <memory>

#include "perf/store/workload.hpp"

namespace {

using namespace linkspan::perf;

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "off-heap-map-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) fail("no temporary folder");
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::unique_ptr<rocksdb::DB> open(const rocksdb::Options& options, const Folder& folder) {
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, folder.path(), &db);
  if (!status.ok()) fail(status.ToString());
  return std::unique_ptr<rocksdb::DB>(db);
}

rocksdb::Slice slice_of(std::string_view text) {
  return {text.data(), text.size()};
}

class Defaults {
 public:
  Defaults() {
    rocksdb::Options options;
    options.create_if_missing = true;
    db_ = open(options, folder_);
  }
  bool put(std::string_view key, std::string_view value) {
    return db_->Put(rocksdb::WriteOptions(), slice_of(key), slice_of(value)).ok();
  }
  template <class F>
  bool get(std::string_view key, F f) {
    std::string value;
    if (!db_->Get(rocksdb::ReadOptions(), slice_of(key), &value).ok()) return false;
    f(value.data(), value.size());
    return true;
  }

 private:
  Folder folder_;
  std::unique_ptr<rocksdb::DB> db_;
};

class Tuned {
 public:
  explicit Tuned(const StoreOptions& store) {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.IncreaseParallelism();
    options.OptimizeForPointLookup(store.entries * (kValueBytes + 4096) / (1 << 20) + 64);
    options.compression = rocksdb::kNoCompression;
    options.allow_mmap_reads = true;
    options.write_buffer_size = std::size_t{256} << 20;
    options.max_write_buffer_number = 4;
    db_ = open(options, folder_);
  }
  bool put(std::string_view key, std::string_view value) {
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    return db_->Put(options, slice_of(key), slice_of(value)).ok();
  }
  template <class F>
  bool get(std::string_view key, F f) {
    rocksdb::ReadOptions options;
    options.verify_checksums = false;
    rocksdb::PinnableSlice value;
    if (!db_->Get(options, db_->DefaultColumnFamily(), slice_of(key), &value).ok()) return false;
    f(value.data(), value.size());
    return true;
  }

 private:
  Folder folder_;
  std::unique_ptr<rocksdb::DB> db_;
};

template <class Store>
void run(const char* variant, Store& store, const StoreOptions& options) {
  fill(store, options);
  measure_reads(variant, store, options);
  measure(variant, store, Mix::write_only, false, options);
}

void run_round(const StoreOptions& options) {
  {
    Defaults defaults;
    run("RocksDB", defaults, options);
  }
  Tuned tuned(options);
  run("RocksDB, tuned", tuned, options);
}

}  // namespace

int main(int argc, char** argv) {
  return run_store_benchmark(argc, argv, run_round);
}
