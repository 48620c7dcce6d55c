// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/files.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "support/slices.hpp"
#include "support/temporary_directory.hpp"

using namespace linkspan;
using linkspan::test::chain_of;
using linkspan::test::TemporaryDirectory;

namespace {

struct Fixture {
  std::unique_ptr<File> open(const std::string& path, OpenMode mode) {
    return files.open(path, mode).value_or_throw();
  }
  static std::string contents(const File& file) {
    std::string text(file.size().value(), '\0');
    CHECK(file.read_at(std::as_writable_bytes(std::span(text)), 0).value() == text.size());
    return text;
  }

  TemporaryDirectory directory;
  Files& files = system_files();
};

std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "create_new refuses an existing file, open_or_create keeps it, read needs it") {
  const std::string path = directory.file("data");
  const auto missing = files.open(path, OpenMode::read);
  CHECK(missing.error().code == std::errc::no_such_file_or_directory);
  CHECK(missing.error().detail.find(path) != std::string::npos);
  REQUIRE(open(path, OpenMode::create_new)->write_at(Chain(Slice::immortal("kept")), 0).ok());
  CHECK(files.open(path, OpenMode::create_new).error().code == std::errc::file_exists);
  CHECK(contents(*open(path, OpenMode::open_or_create)) == "kept");
  const auto read_only = open(path, OpenMode::read);
  CHECK(contents(*read_only) == "kept");
  CHECK(read_only->write_at(Chain(Slice::immortal("x")), 0).error().code == std::errc::bad_file_descriptor);
  CHECK(files.open(directory.path(), OpenMode::read).error().code == std::errc::is_a_directory);
}

TEST_CASE_FIXTURE(Fixture, "chains of any number of slices are written, at any offset, without a copy") {
  for (const std::size_t slices : {0u, 1u, 255u, 256u, 257u, 1000u}) {
    CAPTURE(slices);
    const std::string text = pattern(slices * 3);
    const auto file = open(directory.file(std::to_string(slices)), OpenMode::create_new);
    const Chain chain = chain_of(text, 3);
    const CopyScope scope;
    REQUIRE(file->write_at(chain, 100).ok());
    CHECK(scope.copied().total() == 0);
    CHECK(file->sync().ok());
    CHECK(file->size().value() == (slices == 0 ? 0 : 100 + text.size()));
    if (slices != 0) CHECK(contents(*file) == std::string(100, '\0') + text);
    CHECK(chain == text);
  }
}

TEST_CASE_FIXTURE(Fixture, "a read that reaches the end returns what there is") {
  const auto file = open(directory.write("data", "0123456789"), OpenMode::read);
  std::array<std::byte, 8> to{};
  CHECK(file->read_at(to, 0).value() == 8);
  CHECK(file->read_at(to, 6).value() == 4);
  CHECK(to[0] == std::byte{'6'});
  CHECK(file->read_at(to, 10).value() == 0);
  CHECK(file->read_at(to, 1000).value() == 0);
  CHECK(file->read_at({}, 0).value() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a mapping shows the file, and outlives it") {
  const std::string text = pattern(10'000);
  auto file = open(directory.write("data", text), OpenMode::read);
  Slice slice = file->map(5000, 5000).value();
  CHECK(file->populate(slice).ok());
  CHECK(file->populate(slice.slice(4999, 1)).ok());
  CHECK(file->populate(Slice()).ok());
  const auto past = file->map(5000, 5001);
  CHECK(past.error().code == errc::truncated);
  CHECK(past.error().detail.find("/data: ") != std::string::npos);
  file.reset();
  CHECK(slice.view() == std::string_view(text).substr(5000));
}

TEST_CASE_FIXTURE(Fixture, "populating a mapping whose file was truncated is an error, not a signal") {
  const std::string path = directory.write("data", pattern(20'000));
  const auto file = open(path, OpenMode::read);
  const Slice slice = file->map(0, 20'000).value();
  REQUIRE(::truncate(path.c_str(), 100) == 0);
  CHECK(file->populate(slice).error().code == errc::truncated);
  CHECK(file->populate(slice.slice(0, 100)).ok());
}

TEST_CASE_FIXTURE(Fixture, "attributes are kept with the file where the file system has them") {
  const auto file = open(directory.file("data"), OpenMode::create_new);
  const Status set = file->set_attribute("user.linkspan", "some value");
  if (!set.ok()) {
    CHECK(set.error().code == errc::unavailable);
    return;
  }
  CHECK(file->attribute("user.linkspan").value() == "some value");
  CHECK(file->attribute("user.other").value() == std::nullopt);
  CHECK(file->set_attribute("user.linkspan", "").ok());
  CHECK(open(directory.file("data"), OpenMode::read)->attribute("user.linkspan").value() == "");
  CHECK_FALSE(file->set_attribute("no-such-namespace.x", "1").ok());
}

TEST_CASE_FIXTURE(Fixture, "renaming replaces in one step, and removing removes") {
  const std::string from = directory.write("from", "new");
  const std::string to = directory.write("to", "old");
  CHECK(files.rename(from, to).ok());
  CHECK(contents(*open(to, OpenMode::read)) == "new");
  CHECK(files.rename(from, to).error().code == std::errc::no_such_file_or_directory);
  CHECK(files.sync_directory(directory.path()).ok());
  CHECK(files.remove(to).ok());
  CHECK(files.remove(to).error().code == std::errc::no_such_file_or_directory);
  CHECK_FALSE(files.sync_directory(directory.file("missing")).ok());
}

TEST_CASE_FIXTURE(
    Fixture, "directories are made with those above them, and list what is in them, sorted and bounded") {
  const std::string deep = directory.file("a/b//c/");
  CHECK(files.create_directories(deep).ok());
  CHECK(files.create_directories(deep).ok());
  CHECK(files.list_directory(deep, ListOptions()).value().empty());
  for (const char* name : {"a/b/2", "a/b/1", "a/b/.hidden"}) directory.write(name, "x");
  CHECK(::symlink("1", directory.file("a/b/link").c_str()) == 0);
  CHECK(::mkfifo(directory.file("a/b/pipe").c_str(), 0600) == 0);
  const std::vector<DirectoryEntry> expected{{".hidden", FileKind::file}, {"1", FileKind::file},
                                             {"2", FileKind::file},       {"c", FileKind::directory},
                                             {"link", FileKind::link},    {"pipe", FileKind::other}};
  CHECK((files.list_directory(directory.file("a/b"), ListOptions(6)).value() == expected));
  const auto refused = files.list_directory(directory.file("a/b"), ListOptions(5));
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(refused.error().message().find("max_entries (5)") != std::string::npos);
  CHECK(files.create_directories(directory.file("a/b/1")).error().code == std::errc::not_a_directory);
  CHECK_FALSE(files.create_directories(directory.file("a/b/1/below")).ok());
  CHECK_FALSE(files.create_directories("").ok());
  const auto missing = files.list_directory(directory.file("missing"), ListOptions());
  CHECK(missing.error().code == std::errc::no_such_file_or_directory);
}

TEST_CASE_FIXTURE(Fixture, "a lock keeps others out until its file is closed") {
  auto holder = open(directory.file("lock"), OpenMode::open_or_create);
  const auto other = open(directory.file("lock"), OpenMode::open_or_create);
  CHECK(holder->try_lock().value());
  CHECK(holder->try_lock().value());
  CHECK_FALSE(other->try_lock().value());
  holder.reset();
  CHECK(other->try_lock().value());
}
