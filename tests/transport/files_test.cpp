// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A loop's files, on every transport: in the ring, or on helper threads.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/base/log.hpp"
#include "linkspan/loop/async_files.hpp"
#include "support/log_capture.hpp"
#include "support/sanitized.hpp"
#include "support/slices.hpp"
#include "support/temporary_directory.hpp"
#include "tests/transport/harness.hpp"
#if LINKSPAN_HAVE_IO_URING
#include "lib/transport/uring/uring_transport.hpp"
#endif

namespace linkspan::conformance {
namespace {

using test::TemporaryDirectory;

// What completions said.
struct Outcome {
  int calls = 0;
  std::error_code error;
  std::string detail;
  std::size_t bytes = 0;
  Block block;
  AsyncFile file;
  bool inside = false;  // set by the test around its calls
  int calls_inside = 0;

  void note(const Status& status) {
    ++calls;
    if (inside) ++calls_inside;
    error = status ? std::error_code() : status.error().code;
    detail = status ? "" : status.error().message();
  }
  AsyncFiles::OpenDone opened() {
    return [this](Result<AsyncFile> result) {
      note(result ? Status(std::monostate()) : Status(result.error()));
      if (result) file = std::move(result).value();
    };
  }
  AsyncFile::Done done() {
    return [this](Status status) { note(status); };
  }
  AsyncFile::ReadDone read() {
    return [this](Block given, Result<std::size_t> got) {
      note(got ? Status(std::monostate()) : Status(got.error()));
      bytes = got ? got.value() : 0;
      block = std::move(given);
    };
  }
  AsyncFile::WriteDone written() {
    return [this](Status status, std::size_t size) {
      note(status);
      bytes = size;
    };
  }
  AsyncFile::SizeDone size() {
    return [this](Result<std::uint64_t> result) {
      note(result ? Status(std::monostate()) : Status(result.error()));
      bytes = result ? result.value() : 0;
    };
  }
  [[nodiscard]] std::string text() { return {reinterpret_cast<const char*>(block.data()), bytes}; }
};

Block heap_block(std::size_t size) {
  return heap_allocator().allocate(size);
}

// Runs one operation to its completion.
template <class Start>
void run(World& world, Outcome& outcome, Start start) {
  const int before = outcome.calls;
  outcome.inside = true;
  start();
  outcome.inside = false;
  world.run_until([&] { return outcome.calls != before; });
  CHECK(outcome.calls_inside == 0);
}

AsyncFile open_file(World& world, const std::string& path, OpenMode mode) {
  Outcome outcome;
  run(world, outcome, [&] { world.loop().files().open(path, mode, outcome.opened()); });
  INFO(outcome.detail);
  REQUIRE_FALSE(outcome.error);
  return std::move(outcome.file);
}

std::string contents_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void read_front(EventLoop& loop, const std::string& path, std::function<void(Slice)> use) {
  loop.files().open(path, OpenMode::read, [&loop, use](Result<AsyncFile> file) {
    if (!file) return log(LogLevel::error, "program", file.error().message());
    constexpr std::size_t kSize = 4096;
    file.value().read(loop.pool().allocate(kSize), kSize, 0, [use](Block block, Result<std::size_t> bytes) {
      if (bytes) use(std::move(block).freeze_all(bytes.value()));
    });
  });
}

// How many descriptors of this process refer to `path`.
int descriptors_of(const std::string& path) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    if (std::filesystem::read_symlink(entry.path(), ignored) == path) ++count;
  }
  return count;
}

std::size_t operation_count(World& world) {
  return world.loop().options().max_file_operations;
}

TEST_CASE("64 MiB written and read in random pieces, many at once, are the same bytes") {
  for_each_transport([](World& world) {
    constexpr std::size_t kSize = std::size_t{64} << 20;
    const TemporaryDirectory directory;
    const std::string expected = pattern(kSize);
    const Slice all = Slice::immortal(std::string_view(expected));
    std::mt19937 generator(7);
    std::vector<std::pair<std::size_t, std::size_t>> pieces;  // offset, size
    for (std::size_t at = 0; at < kSize;) {
      const std::size_t most = generator() % 8 == 0 ? std::size_t{4} << 20 : std::size_t{200'000};
      const std::size_t size = std::min<std::size_t>(1 + generator() % most, kSize - at);
      pieces.emplace_back(at, size);
      at += size;
    }
    REQUIRE(pieces.size() < operation_count(world));
    std::shuffle(pieces.begin(), pieces.end(), generator);

    const CopyScope copies;
    AsyncFile file = open_file(world, directory.file("data"), OpenMode::create_new);
    std::size_t left = pieces.size();
    bool good = true;
    for (const auto& [offset, size] : pieces) {
      Chain chain;
      const std::size_t slice = 1 + generator() % 10'000;
      for (std::size_t at = 0; at < size; at += slice) {
        chain.append(all.slice(offset + at, std::min(slice, size - at)));
      }
      file.write(std::move(chain), offset, [&, wanted = size](Status status, std::size_t written) {
        good = good && status.ok() && written == wanted;
        --left;
      });
    }
    world.run_until([&] { return left == 0; });
    CHECK(good);

    Outcome synced;
    run(world, synced, [&] { file.sync(synced.done()); });
    CHECK_FALSE(synced.error);
    Outcome size;
    run(world, size, [&] { file.size(size.size()); });
    CHECK(size.bytes == kSize);

    left = pieces.size();
    for (const auto& [offset, wanted] : pieces) {
      file.read(heap_block(wanted), wanted, offset,
                [&, at = offset, size = wanted](Block block, Result<std::size_t> read) {
                  good = good && read.ok() && read.value() == size && block.size() >= size &&
                         std::memcmp(block.data(), expected.data() + at, size) == 0;
                  --left;
                });
    }
    world.run_until([&] { return left == 0; });
    CHECK(good);
    CHECK(copies.copied().total() == 0);
  });
}

TEST_CASE("reading at the end of a file gives what there is") {
  for_each_transport([](World& world) {
    const TemporaryDirectory directory;
    AsyncFile file = open_file(world, directory.write("data", "0123456789"), OpenMode::read);
    CHECK(file.path() == directory.file("data"));
    Outcome outcome;
    for (const auto& [offset, expected] : std::vector<std::pair<std::uint64_t, std::string>>{
             {0, "01234567"}, {6, "6789"}, {10, ""}, {1'000'000, ""}}) {
      run(world, outcome, [&, at = offset] { file.read(heap_block(8), 8, at, outcome.read()); });
      CHECK_FALSE(outcome.error);
      CHECK(outcome.text() == expected);
      CHECK(outcome.block);
    }
    run(world, outcome, [&] { file.read(Block(), 0, 3, outcome.read()); });
    CHECK_FALSE(outcome.error);
    CHECK(outcome.bytes == 0);
  });
}

TEST_CASE("a file is read with a handle that its opener does not keep") {
  for_each_transport([](World& world) {
    const TemporaryDirectory directory;
    const std::string path = directory.write("data", "contents");
    std::string read;
    read_front(world.loop(), path, [&](Slice slice) { read = slice.view(); });
    world.run_until([&] { return read == "contents"; });
  });
}

TEST_CASE("an open that fails says why, and names the file") {
  for_each_transport([](World& world) {
    const TemporaryDirectory directory;
    const std::string there = directory.write("there", "x");
    const std::string missing = directory.file("missing");
    AsyncFiles& files = world.loop().files();
    Outcome outcome;
    const auto fails = [&](const std::string& path, OpenMode mode, std::errc error) {
      run(world, outcome, [&] { files.open(path, mode, outcome.opened()); });
      CHECK(outcome.error == error);
      CHECK(outcome.detail.find(path) != std::string::npos);
      CHECK_FALSE(outcome.file);
    };
    fails(missing, OpenMode::read, std::errc::no_such_file_or_directory);
    fails(there, OpenMode::create_new, std::errc::file_exists);
    fails(there + "/below", OpenMode::read, std::errc::not_a_directory);
    fails(directory.path(), OpenMode::read, std::errc::is_a_directory);
    world.run_until([&] { return descriptors_of(directory.path()) == 0; });
  });
}

TEST_CASE("a write that fails says how much is in the file, and gives its memory back once") {
  for_each_transport([](World& world) {
    const TemporaryDirectory directory;
    test::Releases memory;
    Outcome outcome;
    {
      AsyncFile full = open_file(world, "/dev/full", OpenMode::open_or_create);
      run(world, outcome, [&] { full.write(Chain(memory.slice("lost")), 0, outcome.written()); });
      CHECK(outcome.error == std::errc::no_space_on_device);
      CHECK(outcome.detail.find("/dev/full") != std::string::npos);
      CHECK(outcome.bytes == 0);
      CHECK(memory.released() == 1);
    }
    AsyncFile read_only = open_file(world, directory.write("data", "x"), OpenMode::read);
    run(world, outcome, [&] { read_only.write(Chain(memory.slice("lost")), 0, outcome.written()); });
    CHECK(outcome.error == std::errc::bad_file_descriptor);
    CHECK(memory.released() == 2);
    AsyncFile file = open_file(world, directory.file("new"), OpenMode::create_new);
    run(world, outcome, [&] { file.write(Chain(), 5, outcome.written()); });
    CHECK_FALSE(outcome.error);
    run(world, outcome, [&] { file.write(Chain(memory.slice("kept")), 2, outcome.written()); });
    CHECK_FALSE(outcome.error);
    CHECK(outcome.bytes == 4);
    CHECK(memory.released() == 3);
    CHECK(contents_of(directory.file("new")) == std::string("\0\0kept", 6));
  });
}

TEST_CASE("a write that meets the file size limit half way says how much was written" *
          doctest::skip(test::kThreadSanitized)) {
  for_each_kernel_transport_name([](const Mode& mode) {
    const TemporaryDirectory directory;
    const ChildResult result = in_child([&] {
      static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
      constexpr std::size_t kLimit = 100'000;
      const rlimit limit{kLimit, kLimit};
      REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
      HelperThreadsOptions options;
      const auto helpers = HelperThreads::create(options).value_or_throw();
      EventLoopOptions loop;
      loop.helpers = helpers.get();
      World world(mode, loop);
      AsyncFile file = open_file(world, directory.file("data"), OpenMode::create_new);
      Outcome outcome;
      run(world, outcome, [&] { file.write(in_slices(pattern(150'000), 3'000), 0, outcome.written()); });
      REQUIRE(outcome.error == std::errc::file_too_large);
      REQUIRE(outcome.bytes == kLimit);
    });
    CHECK(result.exit_code == 0);
  });
}

TEST_CASE("another user's file is refused" * doctest::skip(test::kThreadSanitized)) {
  if (::geteuid() != 0) {
    MESSAGE("only root can become another user: left out");
    return;
  }
  for_each_kernel_transport_name([](const Mode& mode) {
    const TemporaryDirectory directory;
    const std::string secret = directory.write("secret", "x");
    REQUIRE(::chmod(secret.c_str(), 0600) == 0);
    REQUIRE(::chmod(directory.path().c_str(), 0755) == 0);
    const ChildResult result = in_child([&] {
      REQUIRE(::setuid(65534) == 0);
      const auto helpers = HelperThreads::create().value_or_throw();
      EventLoopOptions loop;
      loop.helpers = helpers.get();
      World world(mode, loop);
      Outcome outcome;
      run(world, outcome, [&] { world.loop().files().open(secret, OpenMode::read, outcome.opened()); });
      REQUIRE(outcome.error == std::errc::permission_denied);
    });
    CHECK(result.exit_code == 0);
  });
}

TEST_CASE("paths: rename replaces in one step, remove removes, directories are made and synced") {
  for_each_transport([](World& world) {
    const TemporaryDirectory directory;
    AsyncFiles& files = world.loop().files();
    Outcome outcome;
    const std::string from = directory.write("from", "new");
    const std::string to = directory.write("to", "old");
    AsyncFile old = open_file(world, to, OpenMode::read);
    run(world, outcome, [&] { files.rename(from, to, outcome.done()); });
    CHECK_FALSE(outcome.error);
    CHECK(contents_of(to) == "new");
    run(world, outcome, [&] { old.read(heap_block(3), 3, 0, outcome.read()); });
    CHECK(outcome.text() == "old");  // who had it open keeps what it was
    run(world, outcome, [&] { files.rename(from, to, outcome.done()); });
    CHECK(outcome.error == std::errc::no_such_file_or_directory);
    CHECK(outcome.detail.find(to) != std::string::npos);
    run(world, outcome, [&] { files.remove(to, outcome.done()); });
    CHECK_FALSE(outcome.error);
    run(world, outcome, [&] { files.remove(to, outcome.done()); });
    CHECK(outcome.error == std::errc::no_such_file_or_directory);

    const std::string deep = directory.file("a/b/c");
    run(world, outcome, [&] { files.create_directories(deep, outcome.done()); });
    CHECK_FALSE(outcome.error);
    run(world, outcome, [&] { files.sync_directory(deep, outcome.done()); });
    CHECK_FALSE(outcome.error);
    run(world, outcome, [&] { files.sync_directory(directory.file("none"), outcome.done()); });
    CHECK(outcome.error == std::errc::no_such_file_or_directory);

    std::vector<DirectoryEntry> entries;
    const auto listed = [&](Result<std::vector<DirectoryEntry>> result) {
      outcome.note(result ? Status(std::monostate()) : Status(result.error()));
      entries = result ? std::move(result).value() : std::vector<DirectoryEntry>();
    };
    directory.write("a/file", "x");
    const std::string listing = directory.file("a");
    run(world, outcome, [&] { files.list_directory(listing, ListOptions(2), listed); });
    CHECK_FALSE(outcome.error);
    CHECK((entries == std::vector<DirectoryEntry>{{"b", FileKind::directory}, {"file", FileKind::file}}));
    run(world, outcome, [&] { files.list_directory(listing, ListOptions(1), listed); });
    CHECK(outcome.error == errc::limit_exceeded);
    CHECK(outcome.detail.find(listing) != std::string::npos);
    run(world, outcome, [&] { files.list_directory(directory.file("none"), ListOptions(), listed); });
    CHECK(outcome.error == std::errc::no_such_file_or_directory);
    files.list_directory(listing, ListOptions(), nullptr);  // nobody wants it
    world.settle();
  });
}

TEST_CASE("a file stays open for the operations under way, and is closed after them") {
  for_each_transport([](World& world) {
    const TemporaryDirectory directory;
    const std::string path = directory.write("data", pattern(100'000));
    Outcome outcome;
    {
      AsyncFile file = open_file(world, path, OpenMode::read);
      CHECK(descriptors_of(path) == 1);
      file.read(heap_block(100'000), 100'000, 0, outcome.read());
    }
    world.run_until([&] { return outcome.calls == 1; });
    CHECK_FALSE(outcome.error);
    CHECK(outcome.text() == pattern(100'000));
    world.run_until([&] { return descriptors_of(path) == 0; });

    world.loop().files().open(path, OpenMode::read, nullptr);  // nobody wants it
    world.settle();
    world.run_until([&] { return descriptors_of(path) == 0; });
    AsyncFile kept = open_file(world, path, OpenMode::read);
    world.destroy_loop();
    kept = AsyncFile();
    CHECK(descriptors_of(path) == 0);
  });
}

TEST_CASE("a file that was opened without blocking is sent to a socket, also when its handle is gone") {
  for_each_mode([](World& world) {
    const TemporaryDirectory directory;
    const std::string bytes = pattern(100'000);
    const std::string path = directory.write("data", bytes);
    Connection& c = world.open();
    {
      AsyncFile file = open_file(world, path, OpenMode::read);
      c.stream.write_file({file.share().value_or_throw(), 10, 99'990}, c.writes.next());
    }
    world.run_until([&] { return c.peer.received.size() == 99'990 && descriptors_of(path) == 0; });
    CHECK(c.peer.received == bytes.substr(10));
    world.run_until([&] { return c.writes.complete_and_in_order(); });
    CHECK_FALSE(c.writes.entries[0].error);
  });
}

TEST_CASE("too many operations are refused, and the others complete though few are begun at once") {
  for_each_transport_name([](const Mode& mode) {
    EventLoopOptions options;
    options.max_file_operations = 10;
    options.file_operations_at_once = 2;
    World world(mode, options);
    const TemporaryDirectory directory;
    AsyncFile file = open_file(world, directory.write("data", "0123456789"), OpenMode::read);
    std::vector<Outcome> outcomes(13);
    for (Outcome& outcome : outcomes) {
      outcome.inside = true;
      file.read(heap_block(10), 10, 0, outcome.read());
      outcome.inside = false;
    }
    world.run_until(
        [&] { return std::ranges::all_of(outcomes, [](const Outcome& o) { return o.calls == 1; }); });
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      CAPTURE(i);
      CHECK(outcomes[i].calls_inside == 0);
      CHECK(outcomes[i].block);
      if (i < 10) {
        CHECK(outcomes[i].text() == "0123456789");
      } else {
        CHECK(outcomes[i].error == errc::limit_exceeded);
        CHECK(outcomes[i].detail.find("max_file_operations") != std::string::npos);
      }
    }
    Outcome again;
    run(world, again, [&] { file.read(heap_block(10), 10, 0, again.read()); });
    CHECK_FALSE(again.error);
  });
}

TEST_CASE("without descriptors an open fails, and works again when there are some" *
          doctest::skip(test::kThreadSanitized)) {
  for_each_kernel_transport_name([](const Mode& mode) {
    const TemporaryDirectory directory;
    const std::string path = directory.write("data", "x");
    const ChildResult result = in_child([&] {
      const auto helpers = HelperThreads::create().value_or_throw();
      EventLoopOptions options;
      options.helpers = helpers.get();
      World world(mode, options);
      AsyncFile first = open_file(world, path, OpenMode::read);
      const int next = ::dup(0);
      const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
      ::close(next);
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
      Outcome outcome;
      run(world, outcome, [&] { world.loop().files().open(path, OpenMode::read, outcome.opened()); });
      REQUIRE(outcome.error == std::errc::too_many_files_open);
      first = AsyncFile();
      world.run_until([&] {
        run(world, outcome, [&] { world.loop().files().open(path, OpenMode::read, outcome.opened()); });
        return static_cast<bool>(outcome.file);
      });
    });
    CHECK(result.exit_code == 0);
  });
}

TEST_CASE("a loop that stops completes every operation once, and gives all memory back") {
  for_each_transport_name([](const Mode& mode) {
    const TemporaryDirectory directory;
    constexpr std::size_t kOperations = 200;
    constexpr std::size_t kBytes = 100'000;
    test::Releases memory;
    const std::string bytes = pattern(kBytes);
    std::vector<Outcome> reads(kOperations);
    std::vector<Outcome> writes(kOperations);
    Outcome late;
    EventLoopOptions options;
    options.file_operations_at_once = 8;
    {
      World world(mode, options);
      AsyncFile file = open_file(world, directory.file("data"), OpenMode::create_new);
      for (std::size_t i = 0; i < kOperations; ++i) {
        file.write(Chain(memory.slice(bytes)), i * kBytes, writes[i].written());
        file.read(heap_block(kBytes), kBytes, i * kBytes, reads[i].read());
      }
      world.loop().stop();
      file.sync(late.done());
      CHECK(late.calls == 0);
      world.destroy_loop();
    }
    CHECK(late.calls == 1);
    CHECK(late.error == errc::stopped);
    std::size_t cancelled = 0;
    for (std::size_t i = 0; i < kOperations; ++i) {
      CHECK(reads[i].calls == 1);
      CHECK(reads[i].block);
      CHECK(writes[i].calls == 1);
      CHECK((writes[i].error ? writes[i].error == errc::cancelled : writes[i].bytes == kBytes));
      cancelled += writes[i].error ? 1 : 0;
    }
    CHECK(cancelled >= kOperations - 8);
    CHECK(memory.alive() == 0);
    CHECK(descriptors_of(directory.file("data")) == 0);
  });
}

TEST_CASE("a completion that always starts another file operation does not keep a loop from ending") {
  for_each_transport([](World& world) {
    const TemporaryDirectory directory;
    const std::string path = directory.write("data", "x");
    test::LogCapture capture;
    AsyncFile file = open_file(world, path, OpenMode::read);
    int failures = 0;
    const std::function<void()> again = [&] {
      file.sync([&](Status status) {
        if (!status) ++failures;
        again();
      });
    };
    again();
    world.settle();
    world.destroy_loop();
    CHECK(failures > 0);
  });
}

TEST_CASE("a completion of a file operation that throws is counted, and the loop goes on") {
  for_each_transport([](World& world) {
    const test::LogCapture log;
    const TemporaryDirectory directory;
    world.loop().files().open(directory.file("data"), OpenMode::create_new,
                              [](Result<AsyncFile>) { throw std::runtime_error("oops"); });
    world.run_until([&] { return world.loop().counters().failed_callbacks.get() == 1; });
    CHECK(log.contains("oops"));
    world.run_until([&] { return descriptors_of(directory.file("data")) == 0; });
  });
}

#if LINKSPAN_HAVE_IO_URING
TEST_CASE("files work with a ring of two entries") {
  UringOptions options;
  options.submission_entries = 2;
  options.completion_entries = 4;
  const auto engine = [options](EventLoop& loop) { return make_uring_transport(loop, options); };
  World world({"io_uring", Family::tcp4}, engine, {});
  const std::vector<std::string> names = world.transport().capabilities();
  CHECK(std::ranges::find(names, "files") != names.end());
  const TemporaryDirectory directory;
  AsyncFile file = open_file(world, directory.file("data"), OpenMode::create_new);
  std::size_t left = 300;
  bool good = true;
  for (std::size_t i = 0; i < 300; ++i) {
    file.write(chain_of(std::string(100, static_cast<char>('a' + i % 26))), i * 100,
               [&](Status status, std::size_t written) {
                 good = good && status.ok() && written == 100;
                 --left;
               });
  }
  world.run_until([&] { return left == 0; });
  CHECK(good);
  const std::string contents = contents_of(directory.file("data"));
  REQUIRE(contents.size() == 30'000);
  for (std::size_t i = 0; i < contents.size(); ++i)
    good = good && contents[i] == static_cast<char>('a' + i / 100 % 26);
  CHECK(good);
}

TEST_CASE("a read in the ring that never ends is cancelled at the stop deadline, and gives its block back") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("pipe");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  EventLoopOptions options;
  options.stop_deadline = Duration::zero();
  Outcome outcome;
  const test::LogCapture log;
  World world({"io_uring", Family::tcp4}, options);
  AsyncFile file = open_file(world, path, OpenMode::open_or_create);
  file.read(heap_block(100), 100, 0, outcome.read());
  world.settle();
  CHECK(outcome.calls == 0);
  world.destroy_loop();
  CHECK(outcome.calls == 1);
  CHECK(outcome.error == errc::cancelled);
  CHECK(outcome.block);
}
#endif

}  // namespace
}  // namespace linkspan::conformance
