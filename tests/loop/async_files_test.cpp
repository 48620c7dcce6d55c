// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What is special to files on helper threads; the rest is in tests/transport/files_test.cpp.
#include "linkspan/loop/async_files.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

#include "support/engines.hpp"
#include "support/helpers.hpp"
#include "support/log_capture.hpp"
#include "support/slices.hpp"
#include "support/temporary_directory.hpp"

using namespace linkspan;

namespace {

struct World {
  explicit World(EventLoopOptions options = {}) {
    options.helpers = &helpers;
    loop = test::null_loop(script, std::move(options));
  }
  ~World() { helpers.run_all(); }  // the loop's end waits for files that are being closed
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void tick() { loop->run_once(Duration::zero()); }
  AsyncFile open(const std::string& path) {
    AsyncFile opened;
    loop->files().open(path, OpenMode::open_or_create,
                       [&](Result<AsyncFile> file) { opened = std::move(file).value_or_throw(); });
    helpers.run_all();
    tick();
    REQUIRE(opened);
    return opened;
  }

  test::TemporaryDirectory directory;
  test::ManualHelpers helpers;
  test::EngineScript script;
  std::unique_ptr<EventLoop> loop;
};

}  // namespace

TEST_CASE("operations beyond those at once wait, in order, and go to a helper one after the other") {
  EventLoopOptions options;
  options.file_operations_at_once = 2;
  World world(options);
  AsyncFile file = world.open(world.directory.write("data", "abc"));
  std::string order;
  for (const char name : {'1', '2', '3', '4'}) {
    file.size([&order, name](Result<std::uint64_t>) { order += name; });
  }
  for (int i = 0; i < 4; ++i) {
    CHECK(world.helpers.waiting() == (i == 3 ? 1 : 2));
    world.helpers.run_one();
    world.tick();
  }
  CHECK(order == "1234");
}

TEST_CASE("an operation that no helper takes, or that helpers cancel, fails and says so") {
  World world;
  AsyncFile file = world.open(world.directory.write("data", "abc"));
  std::error_code error;
  std::string detail;
  const auto note = [&](Status status) {
    error = status.error().code;
    detail = status.error().detail;
  };
  world.helpers.refuses = true;
  file.sync(note);
  CHECK_FALSE(error);
  world.tick();
  CHECK(error == errc::limit_exceeded);
  CHECK(detail.find("too many jobs") != std::string::npos);
  CHECK(detail.find(file.path()) != std::string::npos);
  world.helpers.refuses = false;
  file.sync(note);
  world.helpers.run_one(make_error_code(errc::cancelled));
  world.tick();
  CHECK(error == errc::cancelled);
}

TEST_CASE("at the stop deadline operations are left to their threads, with the memory that they use") {
  const test::LogCapture log;
  EventLoopOptions options;
  options.stop_deadline = Duration::zero();
  World world(options);
  test::Releases memory;
  int calls = 0;
  std::error_code errors[4];
  {
    AsyncFile file = world.open(world.directory.write("data", "abc"));
    file.read(heap_allocator().allocate(10), 10, 0, [&](Block block, Result<std::size_t> read) {
      ++calls;
      CHECK_FALSE(block);
      errors[0] = read.error().code;
    });
    file.write(Chain(memory.slice("xyz")), 0, [&](Status status, std::size_t written) {
      ++calls;
      CHECK(written == 0);
      errors[1] = status.error().code;
    });
    file.size([&](Result<std::uint64_t> size) {
      ++calls;
      errors[2] = size.error().code;
    });
    world.loop->files().open(world.directory.file("new"), OpenMode::create_new,
                             [&](Result<AsyncFile> opened) {
                               ++calls;
                               errors[3] = opened.error().code;
                             });
    CHECK(world.helpers.waiting() == 4);
    world.loop.reset();
    CHECK(calls == 4);
    for (const std::error_code error : errors) CHECK(error == errc::cancelled);
    CHECK(memory.released() == 0);
  }
  world.helpers.run_all();
  CHECK(calls == 4);
  CHECK(memory.released() == 1);
}

TEST_CASE("limits of zero file operations are refused") {
  test::EngineScript script;
  EventLoopOptions options;
  options.max_file_operations = 0;
  CHECK_THROWS_AS(static_cast<void>(test::null_loop(script, options)), Exception);
  options.max_file_operations = 1;
  options.file_operations_at_once = 0;
  CHECK_THROWS_AS(static_cast<void>(test::null_loop(script, options)), Exception);
}
