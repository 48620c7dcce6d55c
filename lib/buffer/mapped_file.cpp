// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/mapped_file.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "lib/buffer/buffer_registry.hpp"

namespace linkspan {

Result<Slice> map_file(int file, std::uint64_t offset, std::size_t size) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return Error(system_error_code(errno), "fstat of a file to map");
  const auto file_size = static_cast<std::uint64_t>(status.st_size);
  if (offset > file_size || size > file_size - offset) {
    return Error(errc::truncated, "a mapping of " + std::to_string(size) + " bytes at " +
                                      std::to_string(offset) + " is not inside the file, which has " +
                                      std::to_string(file_size) + " bytes now");
  }
  if (size == 0) return Slice();

  const auto page_size = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t before = offset % page_size;
  const std::size_t length = size + before;
  struct Unmap {
    std::size_t length;
    void operator()(void* memory) const noexcept { ::munmap(memory, length); }
  };
  void* memory = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file, static_cast<off_t>(offset - before));
  if (memory == MAP_FAILED) return Error(system_error_code(errno), "mmap of a file");
  const auto* bytes = static_cast<const std::byte*>(memory) + before;
  Slice mapped = Slice::adopt(std::unique_ptr<void, Unmap>(memory, Unmap{length}), {bytes, size});
  detail::TraceAccess::trace(mapped).set_kind(BufferKind::mapped);
  return mapped;
}

}  // namespace linkspan
