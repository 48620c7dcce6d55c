// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#if defined(__linux__) || defined(__APPLE__)
#include <sys/xattr.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "lib/base/never_destroyed.hpp"
#include "lib/loop/file_call.hpp"
#include "linkspan/buffer/mapped_file.hpp"

namespace linkspan {

File::~File() = default;
int File::descriptor() const noexcept {
  return -1;
}
Files::~Files() = default;

namespace {

Error file_error(const char* what, const std::string& path) {
  return Error(system_error_code(errno), std::string(what) + " " + path);
}

Status status_of(int result, const char* what, const std::string& path) {
  if (result == 0) return std::monostate();
  return file_error(what, path);
}

// Extended attributes: 0, or the size of the value, or -1 with errno.
#if defined(__linux__)
int set_xattr(int file, const char* name, std::string_view value) noexcept {
  return ::fsetxattr(file, name, value.data(), value.size(), 0);
}
ssize_t get_xattr(int file, const char* name, std::span<char> value) noexcept {
  return ::fgetxattr(file, name, value.data(), value.size());
}
constexpr int kNoSuchAttribute = ENODATA;
#elif defined(__APPLE__)
int set_xattr(int file, const char* name, std::string_view value) noexcept {
  return ::fsetxattr(file, name, value.data(), value.size(), 0, 0);
}
ssize_t get_xattr(int file, const char* name, std::span<char> value) noexcept {
  return ::fgetxattr(file, name, value.data(), value.size(), 0, 0);
}
constexpr int kNoSuchAttribute = ENOATTR;
#else
int set_xattr(int, const char*, std::string_view) noexcept {
  errno = ENOTSUP;
  return -1;
}
ssize_t get_xattr(int, const char*, std::span<char>) noexcept {
  errno = ENOTSUP;
  return -1;
}
constexpr int kNoSuchAttribute = ENOENT;
#endif

class SystemFile final : public File {
 public:
  SystemFile(int descriptor, std::string path) noexcept : descriptor_(descriptor), path_(std::move(path)) {}
  ~SystemFile() override { ::close(descriptor_); }

  Result<std::uint64_t> size() const override {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) return file_error("fstat of", path_);
    return static_cast<std::uint64_t>(status.st_size);
  }

  Result<std::size_t> read_at(std::span<std::byte> to, std::uint64_t offset) const override {
    std::size_t done = 0;
    while (done < to.size()) {
      const ssize_t part =
          ::pread(descriptor_, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
      if (part < 0 && errno == EINTR) continue;
      if (part < 0) return file_error("reading", path_);
      if (part == 0) break;
      done += static_cast<std::size_t>(part);
    }
    return done;
  }

  Status write_at(const Chain& chain, std::uint64_t offset, std::size_t& done) override {
    constexpr std::size_t kIovecs = 256;
    std::array<iovec, kIovecs> vectors;
    done = 0;
    std::size_t slice = 0;         // the first one that is not written completely
    std::size_t slice_offset = 0;  // what is written of it
    while (done < chain.size()) {
      std::size_t count = 0;
      for (std::size_t i = slice; i < chain.slice_count() && count < kIovecs; ++i, ++count) {
        const std::size_t skip = i == slice ? slice_offset : 0;
        vectors[count] = {const_cast<std::byte*>(chain[i].data()) + skip, chain[i].size() - skip};
      }
      const ssize_t part =
          ::pwritev(descriptor_, vectors.data(), static_cast<int>(count), static_cast<off_t>(offset + done));
      if (part < 0 && errno == EINTR) continue;
      if (part < 0) return file_error("writing", path_);
      done += static_cast<std::size_t>(part);
      slice_offset += static_cast<std::size_t>(part);
      while (slice < chain.slice_count() && slice_offset >= chain[slice].size()) {
        slice_offset -= chain[slice].size();
        ++slice;
      }
    }
    return std::monostate();
  }

  Status sync() override { return status_of(::fsync(descriptor_), "fsync of", path_); }

  Result<Slice> map(std::uint64_t offset, std::size_t size) const override {
    Result<Slice> slice = map_file(descriptor_, offset, size);
    if (!slice) return Error(slice.error().code, path_ + ": " + slice.error().detail);
    return slice;
  }

  Status populate(const Slice& slice) const override {
    if (slice.empty()) return std::monostate();
    const auto page_size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(slice.data());
    const std::uintptr_t begin = first & ~(page_size - 1);
    const std::size_t length = first + slice.size() - begin;
    auto* address = reinterpret_cast<void*>(begin);
#ifdef MADV_POPULATE_READ
    if (::madvise(address, length, MADV_POPULATE_READ) == 0) return std::monostate();
    if (errno == EFAULT) {
      return Error(errc::truncated, path_ + " was truncated while it was mapped");
    }
    if (errno != EINVAL) return file_error("reading the mapping of", path_);
#endif
    // Linux before 5.14: ask for read-ahead at least. Not an error if that is refused.
    static_cast<void>(::madvise(address, length, MADV_WILLNEED));
    return std::monostate();
  }

  Status set_attribute(const std::string& name, std::string_view value) override {
    if (set_xattr(descriptor_, name.c_str(), value) == 0) return std::monostate();
    return attribute_error(name);
  }

  Result<std::optional<std::string>> attribute(const std::string& name) const override {
    constexpr std::size_t kMaxBytes = 4096;
    std::string value(kMaxBytes, '\0');
    const ssize_t size = get_xattr(descriptor_, name.c_str(), value);
    if (size >= 0) {
      value.resize(static_cast<std::size_t>(size));
      return std::optional(std::move(value));
    }
    if (errno == kNoSuchAttribute) return std::optional<std::string>();
    return attribute_error(name);
  }

  int descriptor() const noexcept override {
    return descriptor_;
  }

  Result<bool> try_lock() override {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
    return file_error("locking", path_);
  }

 private:
  [[nodiscard]] Error attribute_error(const std::string& name) const {
    if (errno == ENOTSUP)
      return Error(errc::unavailable, "the file system of " + path_ + " has no attributes");
    return Error(system_error_code(errno), "attribute " + name + " of " + path_);
  }

  int descriptor_;
  std::string path_;
};

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

// None: it has been removed meanwhile.
std::optional<FileKind> kind_of(DIR& directory, const dirent& entry) {
#ifdef DT_UNKNOWN  // not all file systems say it here
  switch (entry.d_type) {
    case DT_UNKNOWN: break;
    case DT_REG: return FileKind::file;
    case DT_DIR: return FileKind::directory;
    case DT_LNK: return FileKind::link;
    default: return FileKind::other;
  }
#endif
  struct stat status {};
  if (::fstatat(::dirfd(&directory), entry.d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  if (S_ISREG(status.st_mode)) return FileKind::file;
  if (S_ISDIR(status.st_mode)) return FileKind::directory;
  if (S_ISLNK(status.st_mode)) return FileKind::link;
  return FileKind::other;
}

class SystemFiles final : public Files {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override {
    const int descriptor = ::open(path.c_str(), open_flags(mode), mode_t{kNewFilePermissions});
    if (descriptor < 0) return file_error("opening", path);
    auto file = std::make_unique<SystemFile>(descriptor, path);
    struct stat status {};
    if (::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
      return Error(system_error_code(EISDIR), "opening " + path);
    }
    return std::unique_ptr<File>(std::move(file));
  }

  Status rename(const std::string& from, const std::string& to) override {
    return status_of(::rename(from.c_str(), to.c_str()), "renaming to", to);
  }

  Status remove(const std::string& path) override {
    return status_of(::unlink(path.c_str()), "removing", path);
  }

  Status create_directories(const std::string& path) override {
    for (std::size_t end = 1; end <= path.size(); ++end) {
      if (end != path.size() && path[end] != '/') continue;
      const std::string part = path.substr(0, end);
      if (::mkdir(part.c_str(), 0755) != 0 && errno != EEXIST) return file_error("creating directory", part);
    }
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return file_error("looking at", path);
    if (!S_ISDIR(status.st_mode)) return Error(system_error_code(ENOTDIR), "creating directory " + path);
    return std::monostate();
  }

  Status sync_directory(const std::string& path) override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return file_error("opening directory", path);
    Status status = status_of(::fsync(descriptor), "fsync of directory", path);
    ::close(descriptor);
    return status;
  }

  Result<std::vector<DirectoryEntry>> list_directory(const std::string& path, ListOptions options) override {
    const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(path.c_str()));
    if (directory == nullptr) return file_error("listing", path);
    std::vector<DirectoryEntry> entries;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(directory.get());
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      const std::optional<FileKind> kind = kind_of(*directory, *entry);
      if (!kind) continue;
      if (entries.size() == options.max_entries) {
        return Error(errc::limit_exceeded,
                     path + " has more than max_entries (" + std::to_string(options.max_entries) + ") names");
      }
      entries.push_back({std::string(name), *kind});
    }
    if (errno != 0) return file_error("listing", path);
    std::ranges::sort(entries, {}, &DirectoryEntry::name);
    return entries;
  }
};

}  // namespace

std::unique_ptr<File> adopt_file(int descriptor, std::string name) {
  return std::make_unique<SystemFile>(descriptor, std::move(name));
}

Files& system_files() noexcept {
  static NeverDestroyed<SystemFiles> files;
  return files.get();
}

}  // namespace linkspan
