// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "file_sink.hpp"

#include <utility>

#include "linkspan/loop/environment.hpp"

namespace linkspan::blocks {

FileSink::~FileSink() {
  if (!temporary.empty()) static_cast<void>(Environment::system().files.remove(temporary));
}

Status FileSink::open(const std::string& final_path) {
  path = final_path;
  const std::string candidate = path + ".part-" + std::to_string(Environment::system().random.next());
  auto made = Environment::system().files.open(candidate, OpenMode::create_new);
  if (!made) return made.error();
  temporary = candidate;
  file = std::move(made).value();
  return std::monostate();
}

Status FileSink::append(const Chain& bytes) {
  if (file != nullptr) {
    if (Status written = file->write_at(bytes, size_bytes); !written) return written;
  }
  size_bytes += bytes.size();
  return std::monostate();
}

Status FileSink::commit() {
  if (file == nullptr) return std::monostate();
  if (Status renamed = Environment::system().files.rename(temporary, path); !renamed) return renamed;
  temporary.clear();
  return std::monostate();
}

}  // namespace linkspan::blocks
