// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A directory of its own under the system's temporary one, removed with all that is in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace linkspan::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "linkspan-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  /// Writes a whole file and returns its path.
  std::string write(std::string_view name, std::string_view contents) const {
    std::ofstream stream(file(name), std::ios::binary);
    stream << contents;
    return file(name);
  }

 private:
  std::string path_;
};

}  // namespace linkspan::test
