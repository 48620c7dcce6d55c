// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/mapped_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <limits>
#include <string>

#include "support/temporary_directory.hpp"

using namespace linkspan;
using linkspan::test::TemporaryDirectory;

namespace {

std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

}  // namespace

TEST_CASE("any part of a file can be mapped, and outlives the descriptor and the name") {
  const TemporaryDirectory directory;
  const std::string text = pattern(20'000);
  const std::string path = directory.write("data", text);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(file >= 0);
  const CopyScope scope;
  Slice kept;
  for (const std::size_t offset : {0u, 1u, 4095u, 4096u, 4097u, 12'288u, 19'999u}) {
    for (const std::size_t size : {std::size_t{1}, text.size() - offset}) {
      Result<Slice> slice = map_file(file, offset, size);
      REQUIRE(slice.ok());
      CHECK(slice.value().view() == std::string_view(text).substr(offset, size));
      kept = std::move(slice).value();
    }
  }
  kept = map_file(file, 5000, 5000).value();
  ::close(file);
  ::unlink(path.c_str());
  CHECK(kept.view() == std::string_view(text).substr(5000, 5000));
  CHECK(scope.copied().total() == 0);
}

TEST_CASE("a part that is not inside the file is refused") {
  const TemporaryDirectory directory;
  const int file = ::open(directory.write("data", "12345").c_str(), O_RDONLY | O_CLOEXEC);
  constexpr auto kHuge = std::numeric_limits<std::size_t>::max();
  CHECK(map_file(file, 0, 6).error().code == errc::truncated);
  CHECK(map_file(file, 5, 1).error().code == errc::truncated);
  CHECK(map_file(file, 6, 0).error().code == errc::truncated);
  CHECK(map_file(file, 1, kHuge).error().code == errc::truncated);
  CHECK(map_file(file, std::numeric_limits<std::uint64_t>::max(), 1).error().code == errc::truncated);
  CHECK(map_file(file, 0, 6).error().detail.find("5 bytes") != std::string::npos);
  CHECK(map_file(file, 5, 0).value().empty());
  CHECK(map_file(file, 0, 0).value().empty());
  ::close(file);
}

TEST_CASE("an empty file maps to an empty slice, and a bad descriptor is an error") {
  const TemporaryDirectory directory;
  const int file = ::open(directory.write("empty", "").c_str(), O_RDONLY | O_CLOEXEC);
  CHECK(map_file(file, 0, 0).value().empty());
  CHECK(map_file(file, 0, 1).error().code == errc::truncated);
  ::close(file);
  CHECK(map_file(-1, 0, 1).error().code == std::errc::bad_file_descriptor);
}
