// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// FileSink: a file that gets its name when all of it is there. Without commit() it leaves nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/loop/files.hpp"

namespace linkspan::blocks {

struct FileSink {
  ~FileSink();
  Status open(const std::string& final_path);
  Status append(const Chain& bytes);
  Status commit();

  std::string path;
  std::string temporary;  // empty when there is no file, or once it has its name
  std::unique_ptr<File> file;
  std::uint64_t size_bytes = 0;
  std::size_t unreported_bytes = 0;  // written, and the loop has not been told
  std::uint32_t crc32 = 0;
  bool failed = false;
};

}  // namespace linkspan::blocks
