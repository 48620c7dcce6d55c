// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Files and large memory for coroutines, or any other Asio completion token.
// Not for: callbacks on the loop; AsyncFile and LargeAllocation take those as they are.
// Cost: that of the operation below, and one allocation.
// Threads: any; see async_loop.hpp. The file, or the LargeMemory, has to outlive the call's start, which on
// another thread is a post. An operation that ends early goes on below: what it reads is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "linkspan/interop/async_initiate.hpp"
#include "linkspan/loop/async_files.hpp"
#include "linkspan/loop/large_memory.hpp"

namespace linkspan {

/// AsyncFiles::open. Handler: void(std::error_code, AsyncFile).
template <class Token>
auto async_open(EventLoop& loop, std::string path, OpenMode mode, AsyncOptions options, Token&& token) {
  auto start = [path = std::move(path), mode](const auto& operation) {
    operation->result_is_certain();
    operation->loop().files().open(path, mode, [operation](Result<AsyncFile> file) {
      operation->end_with(file ? std::error_code() : file.error().code,
                          file ? std::move(file).value() : AsyncFile());
    });
  };
  return detail::initiate<std::error_code, AsyncFile>(loop, std::move(options), std::move(start),
                                                      std::forward<Token>(token));
}
template <class Token>
auto async_open(EventLoop& loop, std::string path, OpenMode mode, Token&& token) {
  return async_open(loop, std::move(path), mode, AsyncOptions(), std::forward<Token>(token));
}

namespace detail {

/// One without a result: `begin` is called with the loop's files and a completion.
template <class Begin, class Token>
auto path_operation(EventLoop& loop, AsyncOptions options, Begin begin, Token&& token) {
  auto start = [begin = std::move(begin)](const auto& operation) mutable {
    operation->result_is_certain();
    begin(operation->loop().files(), [operation](const Status& status) {
      operation->end_with(status ? std::error_code() : status.error().code);
    });
  };
  return initiate<std::error_code>(loop, std::move(options), std::move(start), std::forward<Token>(token));
}

}  // namespace detail

/// AsyncFiles::rename. Handler: void(std::error_code).
template <class Token>
auto async_rename(EventLoop& loop, std::string from, std::string to, AsyncOptions options, Token&& token) {
  auto begin = [from = std::move(from), to = std::move(to)](AsyncFiles& files,
                                                            AsyncFiles::Done done) mutable {
    files.rename(std::move(from), std::move(to), std::move(done));
  };
  return detail::path_operation(loop, std::move(options), std::move(begin), std::forward<Token>(token));
}
template <class Token>
auto async_rename(EventLoop& loop, std::string from, std::string to, Token&& token) {
  return async_rename(loop, std::move(from), std::move(to), AsyncOptions(), std::forward<Token>(token));
}

/// AsyncFiles::remove. Handler: void(std::error_code).
template <class Token>
auto async_remove(EventLoop& loop, std::string path, AsyncOptions options, Token&& token) {
  auto begin = [path = std::move(path)](AsyncFiles& files, AsyncFiles::Done done) mutable {
    files.remove(std::move(path), std::move(done));
  };
  return detail::path_operation(loop, std::move(options), std::move(begin), std::forward<Token>(token));
}
template <class Token>
auto async_remove(EventLoop& loop, std::string path, Token&& token) {
  return async_remove(loop, std::move(path), AsyncOptions(), std::forward<Token>(token));
}

/// AsyncFiles::create_directories. Handler: void(std::error_code).
template <class Token>
auto async_create_directories(EventLoop& loop, std::string path, AsyncOptions options, Token&& token) {
  auto begin = [path = std::move(path)](AsyncFiles& files, AsyncFiles::Done done) mutable {
    files.create_directories(std::move(path), std::move(done));
  };
  return detail::path_operation(loop, std::move(options), std::move(begin), std::forward<Token>(token));
}
template <class Token>
auto async_create_directories(EventLoop& loop, std::string path, Token&& token) {
  return async_create_directories(loop, std::move(path), AsyncOptions(), std::forward<Token>(token));
}

/// AsyncFiles::sync_directory. Handler: void(std::error_code).
template <class Token>
auto async_sync_directory(EventLoop& loop, std::string path, AsyncOptions options, Token&& token) {
  auto begin = [path = std::move(path)](AsyncFiles& files, AsyncFiles::Done done) mutable {
    files.sync_directory(std::move(path), std::move(done));
  };
  return detail::path_operation(loop, std::move(options), std::move(begin), std::forward<Token>(token));
}
template <class Token>
auto async_sync_directory(EventLoop& loop, std::string path, Token&& token) {
  return async_sync_directory(loop, std::move(path), AsyncOptions(), std::forward<Token>(token));
}

/// AsyncFiles::list_directory. Handler: void(std::error_code, std::vector<DirectoryEntry>).
template <class Token>
auto async_list_directory(EventLoop& loop, std::string path, ListOptions list_options, AsyncOptions options,
                          Token&& token) {
  auto start = [path = std::move(path), list_options](const auto& operation) {
    operation->result_is_certain();
    operation->loop().files().list_directory(
        path, list_options, [operation](Result<std::vector<DirectoryEntry>> entries) {
          operation->end_with(entries ? std::error_code() : entries.error().code,
                              entries ? std::move(entries).value() : std::vector<DirectoryEntry>());
        });
  };
  return detail::initiate<std::error_code, std::vector<DirectoryEntry>>(
      loop, std::move(options), std::move(start), std::forward<Token>(token));
}
template <class Token>
auto async_list_directory(EventLoop& loop, std::string path, ListOptions list_options, Token&& token) {
  return async_list_directory(loop, std::move(path), list_options, AsyncOptions(),
                              std::forward<Token>(token));
}

/// AsyncFile::read. Handler: void(std::error_code, Block, std::size_t): the block comes back with so many
/// bytes at its front; empty after an early end.
template <class Token>
auto async_read_at(EventLoop& loop, AsyncFile& file, Block&& into, std::size_t size, std::uint64_t offset,
                   AsyncOptions options, Token&& token) {
  auto start = [&file, into = std::move(into), size, offset](const auto& operation) mutable {
    operation->result_is_certain();
    file.read(std::move(into), size, offset, [operation](Block block, Result<std::size_t> bytes) {
      operation->end_with(bytes ? std::error_code() : bytes.error().code, std::move(block),
                          bytes ? bytes.value() : 0);
    });
  };
  return detail::initiate<std::error_code, Block, std::size_t>(loop, std::move(options), std::move(start),
                                                               std::forward<Token>(token));
}
template <class Token>
auto async_read_at(EventLoop& loop, AsyncFile& file, Block&& into, std::size_t size, std::uint64_t offset,
                   Token&& token) {
  return async_read_at(loop, file, std::move(into), size, offset, AsyncOptions(), std::forward<Token>(token));
}

/// AsyncFile::write. Handler: void(std::error_code, std::size_t written).
template <class Token>
auto async_write_at(EventLoop& loop, AsyncFile& file, Chain&& data, std::uint64_t offset,
                    AsyncOptions options, Token&& token) {
  auto start = [&file, data = std::move(data), offset](const auto& operation) mutable {
    operation->result_is_certain();
    file.write(std::move(data), offset, [operation](const Status& status, std::size_t written) {
      operation->end_with(status ? std::error_code() : status.error().code, std::size_t{written});
    });
  };
  return detail::initiate<std::error_code, std::size_t>(loop, std::move(options), std::move(start),
                                                        std::forward<Token>(token));
}
template <class Token>
auto async_write_at(EventLoop& loop, AsyncFile& file, Chain&& data, std::uint64_t offset, Token&& token) {
  return async_write_at(loop, file, std::move(data), offset, AsyncOptions(), std::forward<Token>(token));
}

/// AsyncFile::sync. Handler: void(std::error_code).
template <class Token>
auto async_sync(EventLoop& loop, AsyncFile& file, AsyncOptions options, Token&& token) {
  auto start = [&file](const auto& operation) {
    operation->result_is_certain();
    file.sync([operation](const Status& status) {
      operation->end_with(status ? std::error_code() : status.error().code);
    });
  };
  return detail::initiate<std::error_code>(loop, std::move(options), std::move(start),
                                           std::forward<Token>(token));
}
template <class Token>
auto async_sync(EventLoop& loop, AsyncFile& file, Token&& token) {
  return async_sync(loop, file, AsyncOptions(), std::forward<Token>(token));
}

/// AsyncFile::size. Handler: void(std::error_code, std::uint64_t).
template <class Token>
auto async_size(EventLoop& loop, AsyncFile& file, AsyncOptions options, Token&& token) {
  auto start = [&file](const auto& operation) {
    operation->result_is_certain();
    file.size([operation](const Result<std::uint64_t>& size) {
      operation->end_with(size ? std::error_code() : size.error().code, size ? size.value() : 0);
    });
  };
  return detail::initiate<std::error_code, std::uint64_t>(loop, std::move(options), std::move(start),
                                                          std::forward<Token>(token));
}
template <class Token>
auto async_size(EventLoop& loop, AsyncFile& file, Token&& token) {
  return async_size(loop, file, AsyncOptions(), std::forward<Token>(token));
}

/// A LargeAllocation, which an early end gives up. Handler: void(std::error_code, Block).
template <class Token>
auto async_allocate(EventLoop& loop, LargeMemory& memory, std::size_t size, LargeAllocation::Place place,
                    AsyncOptions options, Token&& token) {
  auto start = [&memory, size, place](const auto& operation) {
    auto done = [operation](Block block, std::error_code error) {
      operation->end_with(error, std::move(block));
    };
    auto allocation =
        std::make_unique<LargeAllocation>(memory, operation->loop(), size, place, std::move(done));
    operation->when_abandoned([allocation = std::move(allocation)] {});
  };
  return detail::initiate<std::error_code, Block>(loop, std::move(options), std::move(start),
                                                  std::forward<Token>(token));
}
template <class Token>
auto async_allocate(EventLoop& loop, LargeMemory& memory, std::size_t size, LargeAllocation::Place place,
                    Token&& token) {
  return async_allocate(loop, memory, size, place, AsyncOptions(), std::forward<Token>(token));
}

}  // namespace linkspan
