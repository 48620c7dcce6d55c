// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "block_store.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>
#include <vector>

#include "linkspan/buffer/checksum.hpp"

namespace linkspan::blocks {
namespace {

constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::string_view kLockName = ".lock";
constexpr std::size_t kNameMaxBytes = 200;
constexpr std::size_t kFilesMost = 10'000'000;  // in the directory of a store that is opened
const std::string kChecksumAttribute = "user.linkspan.crc32";

std::string to_hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

Error damaged(const std::string& what) {
  return Error(errc::malformed, what);
}

// Reads the file through a buffer of its own: a mapping that somebody truncates would raise SIGBUS.
Result<std::uint32_t> compute_checksum(const File& file, std::uint64_t size_bytes) {
  std::vector<std::byte> buffer(std::size_t{256} << 10);
  std::uint32_t checksum = 0;
  for (std::uint64_t offset = 0; offset < size_bytes;) {
    Result<std::size_t> read = file.read_at(buffer, offset);
    if (!read) return read.error();
    if (read.value() == 0) return Error(errc::truncated, "the stored block was truncated while it was read");
    checksum = crc32(std::span(buffer).first(read.value()), checksum);
    offset += read.value();
  }
  return checksum;
}

Result<std::uint32_t> stored_checksum(const File& file, std::uint64_t size_bytes) {
  Result<std::optional<std::string>> attribute = file.attribute(kChecksumAttribute);
  if (!attribute || !attribute.value()) return compute_checksum(file, size_bytes);
  const std::string& text = *attribute.value();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || value > UINT32_MAX) {
    return damaged("the checksum kept with the stored block is not one: \"" + text + "\"");
  }
  return static_cast<std::uint32_t>(value);
}

}  // namespace

// --- PendingBlock ----------------------------------------------------------------------------------------

PendingBlock::PendingBlock(Files& files, std::string directory, std::string name, std::string temporary,
                           std::unique_ptr<File> file, bool with_checksum)
    : files_(files),
      directory_(std::move(directory)),
      name_(std::move(name)),
      temporary_(std::move(temporary)),
      file_(std::move(file)),
      with_checksum_(with_checksum) {}

PendingBlock::~PendingBlock() {
  // What cannot be removed now is removed at the next start.
  if (!temporary_.empty()) static_cast<void>(files_.remove(temporary_));
}

Status PendingBlock::append(const Chain& bytes) {
  Status written = file_->write_at(bytes, size_bytes_);
  if (!written) return written;
  size_bytes_ += bytes.size();
  if (with_checksum_) crc32_ = checksum(ChecksumKind::crc32, bytes, crc32_);
  return std::monostate();
}

Status PendingBlock::commit(std::uint64_t size_bytes, std::optional<std::uint32_t> crc32) {
  if (size_bytes != size_bytes_) {
    return damaged("the block announced has " + std::to_string(size_bytes) + " bytes, received were " +
                   std::to_string(size_bytes_));
  }
  if (crc32.has_value() != with_checksum_) {
    return damaged("a checksum comes exactly when the put was begun with one");
  }
  if (crc32) {
    if (*crc32 != crc32_) return damaged("the checksum does not match: the block was damaged on its way");
    Status kept = file_->set_attribute(kChecksumAttribute, to_hex(*crc32));
    if (!kept && kept.error().code != errc::unavailable) return kept;
  }
  if (Status synced = file_->sync(); !synced) return synced;
  if (Status renamed = files_.rename(temporary_, directory_ + "/" + name_); !renamed) return renamed;
  temporary_.clear();
  Status durable = files_.sync_directory(directory_);
  // Not acknowledged, so it must not be listed either.
  if (!durable) static_cast<void>(files_.remove(directory_ + "/" + name_));
  return durable;
}

// --- StoredBlock -----------------------------------------------------------------------------------------

StoredBlock::StoredBlock(std::unique_ptr<File> file, Slice whole, std::optional<std::uint32_t> crc32)
    : file_(std::move(file)), whole_(std::move(whole)), crc32_(crc32) {}

Result<std::unique_ptr<StoredBlock>> StoredBlock::open(std::unique_ptr<File> file, bool with_checksum) {
  Result<std::uint64_t> size = file->size();
  if (!size) return size.error();
  std::optional<std::uint32_t> crc32;
  if (with_checksum) {
    Result<std::uint32_t> stored = stored_checksum(*file, size.value());
    if (!stored) return stored.error();
    crc32 = stored.value();
  }
  Result<Slice> whole = file->map(0, size.value());
  if (!whole) return whole.error();
  return std::unique_ptr<StoredBlock>(new StoredBlock(std::move(file), std::move(whole).value(), crc32));
}

Result<Slice> StoredBlock::chunk(std::uint64_t offset, std::size_t size) const {
  Result<std::uint64_t> size_now = file_->size();
  if (!size_now) return size_now.error();
  if (size_now.value() < offset + size) {
    return Error(errc::truncated, "the stored block was truncated to " + std::to_string(size_now.value()) +
                                      " bytes while it was read");
  }
  Slice part = whole_.slice(offset, size);
  Status populated = file_->populate(part);
  if (!populated) return populated.error();
  return part;
}

Result<Socket> StoredBlock::duplicate_descriptor() const {
  Socket copy(::fcntl(file_->descriptor(), F_DUPFD_CLOEXEC, 0));
  if (copy) return copy;
  const std::error_code why(errno, std::generic_category());
  return Error(why, "duplicating a block's descriptor: " + why.message());
}

// --- BlockStore ------------------------------------------------------------------------------------------

BlockStore::BlockStore(const Environment& environment, std::string directory, std::unique_ptr<File> lock)
    : environment_(environment), directory_(std::move(directory)), lock_(std::move(lock)) {}

Result<std::unique_ptr<BlockStore>> BlockStore::open(const Environment& environment, std::string directory) {
  Files& files = environment.files;
  if (Status created = files.create_directories(directory); !created) return created.error();
  auto lock = files.open(directory + "/" + std::string(kLockName), OpenMode::open_or_create);
  if (!lock) return lock.error();
  Result<bool> locked = lock.value()->try_lock();
  if (!locked) return locked.error();
  if (!locked.value()) return Error(errc::unavailable, directory + " is in use by another server");

  auto entries = files.list_directory(directory, ListOptions(kFilesMost));
  if (!entries) return entries.error();
  for (const auto& [name, kind] : entries.value()) {
    if (kind != FileKind::file || !name.starts_with(kTemporaryPrefix)) continue;
    if (Status removed = files.remove(directory + "/" + name); !removed) return removed.error();
  }
  return std::unique_ptr<BlockStore>(
      new BlockStore(environment, std::move(directory), std::move(lock).value()));
}

Status BlockStore::check_name(const std::string& name) {
  const auto forbidden = [](char c) { return c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty() || name.size() > kNameMaxBytes || name.front() == '.' ||
      std::ranges::any_of(name, forbidden)) {
    return Error(
        errc::invalid_argument,
        "\"" + name +
            "\" is not a block name (1 to 200 bytes, no '/', no control characters, no '.' in front)");
  }
  return std::monostate();
}

Result<std::unique_ptr<PendingBlock>> BlockStore::begin_put(const std::string& name, bool with_checksum) {
  if (Status valid = check_name(name); !valid) return valid.error();
  std::string temporary = path_of(std::string(kTemporaryPrefix) + to_hex(environment_.random.next()));
  auto file = environment_.files.open(temporary, OpenMode::create_new);
  if (!file) return file.error();
  return std::make_unique<PendingBlock>(environment_.files, directory_, name, std::move(temporary),
                                        std::move(file).value(), with_checksum);
}

Result<std::unique_ptr<StoredBlock>> BlockStore::get(const std::string& name, bool with_checksum) {
  if (Status valid = check_name(name); !valid) return valid.error();
  auto file = environment_.files.open(path_of(name), OpenMode::read);
  if (!file) return file.error();
  return StoredBlock::open(std::move(file).value(), with_checksum);
}

Result<std::vector<std::string>> BlockStore::list(const std::string& after, std::size_t most, bool& more) {
  auto entries = environment_.files.list_directory(directory_, ListOptions(kFilesMost));
  if (!entries) return entries.error();
  more = false;
  std::vector<std::string> names;
  for (auto& [name, kind] : entries.value()) {  // sorted
    // What begins with a '.' is no block: the lock, and what is being written.
    if (kind != FileKind::file || name.starts_with('.') || name <= after) continue;
    more = names.size() == most;
    if (more) break;
    names.push_back(std::move(name));
  }
  return names;
}

Status BlockStore::remove(const std::string& name) {
  if (Status valid = check_name(name); !valid) return valid;
  if (Status removed = environment_.files.remove(path_of(name)); !removed) return removed;
  return environment_.files.sync_directory(directory_);
}

}  // namespace linkspan::blocks
