// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about ranges of files among the writes.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "linkspan/buffer/copy_ledger.hpp"
#include "support/sanitized.hpp"
#include "support/temporary_directory.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

using SharedFile = std::shared_ptr<const File>;

/// A file of the system whose contents are `bytes`; its name is gone.
SharedFile file_of(std::string_view bytes) {
  const test::TemporaryDirectory directory;
  auto file = system_files().open(directory.file("data"), OpenMode::create_new).value_or_throw();
  if (!file->write_at(chain_of(bytes), 0).ok()) FAIL("the file cannot be written");
  return file;
}

/// A file that no kernel knows, and that says when it is closed. It fails from `bad_from` on, with `error`.
class ProgramsFile final : public File {
 public:
  explicit ProgramsFile(std::string bytes, bool* closed = nullptr, std::size_t bad_from = std::string::npos,
                        int error = EIO)
      : bytes_(std::move(bytes)), closed_(closed), bad_from_(bad_from), error_(error) {}
  ~ProgramsFile() override {
    if (closed_ != nullptr) *closed_ = true;
  }

  Result<std::uint64_t> size() const override { return std::uint64_t{bytes_.size()}; }
  Result<std::size_t> read_at(std::span<std::byte> to, std::uint64_t offset) const override {
    if (offset >= bad_from_) return Error(system_error_code(error_), "a bad sector");
    const std::string_view rest = std::string_view(bytes_).substr(std::min(offset, bytes_.size()));
    const std::size_t size = std::min({to.size(), rest.size(), bad_from_ - offset});
    for (std::size_t i = 0; i < size; ++i) to[i] = static_cast<std::byte>(rest[i]);
    return size;
  }
  Status write_at(const Chain&, std::uint64_t, std::size_t&) override { return refused(); }
  Status sync() override { return refused(); }
  Result<Slice> map(std::uint64_t, std::size_t) const override { return refused(); }
  Status populate(const Slice&) const override { return refused(); }
  Status set_attribute(const std::string&, std::string_view) override { return refused(); }
  Result<std::optional<std::string>> attribute(const std::string&) const override { return refused(); }
  Result<bool> try_lock() override { return refused(); }

 private:
  static Error refused() { return Error(errc::unavailable, "a file of the test"); }

  std::string bytes_;
  bool* closed_;
  std::size_t bad_from_;
  int error_;
};

void write_file(Connection& c, SharedFile file, std::uint64_t offset, std::uint64_t size) {
  c.stream.write_file({std::move(file), offset, size}, c.writes.next());
}

}  // namespace

TEST_CASE("ranges of files leave in their place among the chains, and nothing is copied") {
  for_each_mode([](World& world) {
    for (const bool small_buffers : {false, true}) {
      CAPTURE(small_buffers);
      Connection& c = world.open({}, small_buffers);
      const std::string bytes = pattern(300'000);
      const SharedFile file = file_of(bytes);
      const std::string borrowed = pattern(70'000);
      int released = 0;
      const auto borrow = [&] {
        return Chain(Slice::borrow(std::as_bytes(std::span(borrowed)), [&released] { ++released; }));
      };
      const CopyScope scope;
      std::string sent;
      c.write(borrow());
      write_file(c, file, 0, bytes.size());
      write_file(c, file, 12'345, 1);
      write_file(c, file, 99'999, 100'001);
      c.write(borrow());
      c.write(borrow());
      write_file(c, file, 299'999, 1);
      sent = borrowed + bytes + bytes[12'345] + bytes.substr(99'999, 100'001) + borrowed + borrowed +
             bytes.back();
      CHECK(c.stream.queued_bytes() == sent.size());
      CHECK_FALSE(c.stream.writable());
      world.run_until([&] { return c.peer.received.size() >= sent.size() && c.writes.entries.size() == 7; });
      CHECK((c.peer.received == sent));
      CHECK(c.writes.complete_and_in_order());
      CHECK(c.writes.entries[1].accepted == bytes.size());
      CHECK(c.writes.entries[3].accepted == 100'001);
      CHECK(c.events.progress == sent.size());
      CHECK(c.events.count(Event::writable) == 1);
      CHECK(c.stream.queued_bytes() == 0);
      CHECK(released == 3);
      // A simulated kernel does not send from files: they are read.
      if (!world.mode().is_sim()) CHECK(scope.copied().total() == 0);
      CHECK(file.use_count() == 1);
    }
  });
}

TEST_CASE("an empty range completes once, later, in its place, and closes its file") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    bool closed = false;
    c.write("a");
    write_file(c, std::make_shared<ProgramsFile>("", &closed), 0, 0);
    c.write("b");
    CHECK(c.writes.entries.empty());
    world.run_until([&] { return c.peer.received == "ab" && c.writes.entries.size() == 3; });
    CHECK(c.writes.complete_and_in_order());
    CHECK(c.writes.entries[1].accepted == 0);
    CHECK_FALSE(c.writes.entries[1].error);
    CHECK(closed);
  });
}

TEST_CASE("a file stays open until its last byte was accepted, and is closed outside of calls") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    world.fill(c);
    bool closed = false;
    c.stream.write_file({std::make_shared<ProgramsFile>("contents", &closed), 0, 8});
    world.settle();
    CHECK_FALSE(closed);
    c.peer.reads = true;
    world.run_until([&] { return c.stream.queued_bytes() == 0; });
    world.settle();
    CHECK(closed);

    closed = false;
    c.stream.write_file({std::make_shared<ProgramsFile>("contents", &closed), 0, 8});
    c.stream.flush();
    c.stream.shutdown_write();
    c.stream.write_file({std::make_shared<ProgramsFile>("refused", &closed), 0, 7});
    CHECK_FALSE(closed);
    world.run_until([&] { return c.peer.ended && closed; });
    CHECK(c.peer.received.ends_with("contentscontents"));
  });
}

TEST_CASE("flush sends from files at once, and reports it later") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const SharedFile file = file_of("from a file");
    write_file(c, file, 5, 6);
    c.events.inside_call = true;
    c.stream.flush();
    c.events.inside_call = false;
    CHECK(c.writes.entries.empty());
    world.let_arrive();
    c.peer.pump();
    CHECK(c.peer.received == "a file");
    world.run_until([&] { return c.writes.entries.size() == 1; });
    CHECK(c.events.progress == 6);
    CHECK(c.events.calls_inside_calls == 0);
  });
}

TEST_CASE("a callback may flush what comes behind a file") {
  for_each_mode([](World& world) {
    Connection& c = world.open({}, true);
    const std::string bytes = pattern(200'000);
    const SharedFile file = file_of(bytes);
    int more = 20;
    std::string sent = bytes;
    c.events.during = [&](Event event) {
      if (event != Event::progress || more == 0) return;
      if (--more % 2 == 0) {
        c.write("chain");
        sent += "chain";
      } else {
        write_file(c, file, 1000, 5000);
        sent += bytes.substr(1000, 5000);
      }
      c.stream.flush();
    };
    write_file(c, file, 0, bytes.size());
    world.run_until([&] { return more == 0 && c.stream.queued_bytes() == 0; });
    world.run_until([&] { return c.peer.received.size() >= sent.size(); });
    CHECK((c.peer.received == sent));
    CHECK(c.writes.complete_and_in_order());
  });
}

TEST_CASE("a file that ends before its range does fails the write and resets the connection") {
  for_each_mode([](World& world) {
    for (const bool of_system : {true, false}) {
      CAPTURE(of_system);
      Connection& c = world.open();
      const std::string bytes = pattern(100'000);
      const SharedFile file = of_system ? file_of(bytes) : std::make_shared<ProgramsFile>(bytes);
      c.write("head");
      write_file(c, file, 0, bytes.size() + 1);
      c.write("never");
      world.run_until([&] { return c.events.closed(); });
      REQUIRE(c.writes.entries.size() == 3);
      CHECK_FALSE(c.writes.entries[0].error);
      CHECK(c.writes.entries[1].error == errc::truncated);
      CHECK(c.writes.entries[1].accepted == bytes.size());
      CHECK(c.writes.entries[2].error == errc::truncated);
      CHECK(c.events.closed_error == errc::truncated);
      CHECK(c.events.write_closed_error == errc::truncated);
      CHECK(c.events.progress == 4 + bytes.size());
      CHECK(c.events.unsent == "never");
      world.run_until([&] { return c.peer.ended || c.peer.error != 0; });
      if (!world.is_unix()) CHECK(c.peer.error == ECONNRESET);
      CHECK(file.use_count() == 1);
    }
  });
}

TEST_CASE("a range behind the end of its file, or that no file can have, fails") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const SharedFile file = file_of("short");
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    write_file(c, file, kMost, 1);
    write_file(c, file, 1, kMost);
    write_file(c, file, 0, kMost + 1);
    write_file(c, file, std::numeric_limits<std::uint64_t>::max(), 2);
    c.write("goes on");
    world.run_until([&] { return c.peer.received == "goes on" && c.writes.entries.size() == 5; });
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(c.writes.entries[i].error == errc::limit_exceeded);
      CHECK(c.writes.entries[i].accepted == 0);
    }
    write_file(c, file, 5, kMost - 5);
    write_file(c, file, 0, kMost);
    write_file(c, file, 0, 5);
    world.run_until([&] { return c.events.closed(); });
    REQUIRE(c.writes.entries.size() == 8);
    CHECK(c.writes.entries[5].error == errc::truncated);
    CHECK(c.writes.entries[6].error == errc::limit_exceeded);
    CHECK(c.writes.entries[7].error == errc::truncated);
  });
}

TEST_CASE("a file that is truncated while it is queued breaks the stream; one that is replaced is sent") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const test::TemporaryDirectory directory;
    const std::string path = directory.file("data");
    const std::string bytes = pattern(50'000);
    const auto open = [&](OpenMode mode) -> std::unique_ptr<File> {
      return system_files().open(path, mode).value_or_throw();
    };
    REQUIRE(open(OpenMode::create_new)->write_at(chain_of(bytes), 0).ok());
    const std::string before = world.fill(c);
    write_file(c, open(OpenMode::read), 0, bytes.size());
    REQUIRE(system_files().remove(path).ok());
    REQUIRE(open(OpenMode::create_new)->write_at(chain_of("another one"), 0).ok());
    write_file(c, open(OpenMode::read), 0, 11);
    REQUIRE(::truncate(path.c_str(), 7) == 0);
    c.peer.reads = true;
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.writes.entries[c.writes.entries.size() - 2].accepted == bytes.size());
    CHECK_FALSE(c.writes.entries[c.writes.entries.size() - 2].error);
    CHECK(c.writes.entries.back().error == errc::truncated);
    CHECK(c.writes.entries.back().accepted == 7);
    CHECK(c.events.progress == before.size() + bytes.size() + 7);
  });
}

TEST_CASE("a file that cannot be read breaks the stream with the system's error") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    write_file(c, std::make_shared<ProgramsFile>(pattern(100'000), nullptr, 80'000), 0, 100'000);
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.closed_error == std::errc::io_error);
    CHECK(c.writes.entries[0].error == std::errc::io_error);
    CHECK(c.writes.entries[0].accepted == 80'000);
    world.run_until([&] { return c.peer.ended || c.peer.error != 0; });
    if (!world.is_unix()) CHECK(c.peer.error == ECONNRESET);

    Connection& directory = world.open();
    write_file(directory, adopt_file(::open("/", O_RDONLY | O_CLOEXEC), "/"), 0, 1);
    world.run_until([&] { return directory.events.closed(); });
    CHECK(directory.events.closed_error == std::errc::is_a_directory);
  });
}

TEST_CASE("a file that is not ready to be read is not waited for as if the socket were full") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    write_file(c, std::make_shared<ProgramsFile>(pattern(1000), nullptr, 0, EAGAIN), 0, 1000);
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.closed_error == errc::unavailable);
    CHECK(c.writes.entries[0].error == errc::unavailable);
    CHECK(c.writes.entries[0].accepted == 0);
  });
}

TEST_CASE("files that the kernel does not send from are read instead, and that is counted") {
  for_each_mode([](World& world) {
    for (const bool small_buffers : {false, true}) {
      CAPTURE(small_buffers);
      Connection& c = world.open({}, small_buffers);
      const std::string bytes = pattern(250'000);
      const SharedFile file = std::make_shared<ProgramsFile>(bytes);
      const CopyScope scope;
      c.stream.write(Chain(Slice::immortal("head")));
      write_file(c, file, 1, bytes.size() - 1);
      c.stream.write(Chain(Slice::immortal("tail")));
      world.run_until([&] { return c.peer.received.size() == bytes.size() + 7; });
      CHECK((c.peer.received == "head" + bytes.substr(1) + "tail"));
      CHECK(scope.copied()[CopyPlace::file] == bytes.size() - 1);
      CHECK(scope.copied().total() == bytes.size() - 1);
    }
    Connection& c = world.open();
    const SharedFile of_proc = adopt_file(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC), "cmdline");
    std::string bytes(5, '\0');
    REQUIRE(of_proc->read_at(std::as_writable_bytes(std::span(bytes)), 0).value() == 5);
    write_file(c, of_proc, 0, 5);
    world.run_until([&] { return c.peer.received == bytes; });
  });
}

TEST_CASE("reading a file instead waits for the pool") {
  for_each_mode_name([](const Mode& mode) {
    EventLoopOptions options;
    options.pool.budget_bytes = std::size_t{1} << 20;
    World world(mode, options);
    Connection& c = world.open();
    std::vector<Block> blocks;
    while (Block block = world.loop().pool().allocate(512)) blocks.push_back(std::move(block));
    write_file(c, std::make_shared<ProgramsFile>("late"), 0, 4);
    world.check_quiet();
    CHECK(c.peer.received.empty());
    blocks.clear();
    world.run_until([&] { return c.peer.received == "late"; });
  });
}

TEST_CASE("a peer that has ended and does not read leaves a stream with files in peace") {
  for_each_mode([](World& world) {
    Connection& c = world.open({}, true);
    c.peer.reads = false;
    c.peer.shutdown_write();
    const std::string bytes = pattern(1'000'000);
    write_file(c, file_of(bytes), 0, bytes.size());
    world.settle();
    world.check_quiet();
    CHECK(c.stream.queued_bytes() != 0);
    c.peer.reads = true;
    world.run_until([&] { return c.peer.received.size() == bytes.size(); });
    CHECK((c.peer.received == bytes));
    world.check_quiet();
  });
}

TEST_CASE("close sends the files that are queued, and shutdown_write ends behind them") {
  for_each_mode([](World& world) {
    for (const bool closes : {true, false}) {
      Connection& c = world.open({}, true);
      const std::string bytes = pattern(400'000);
      write_file(c, file_of(bytes), 0, bytes.size());
      if (closes) {
        c.stream.close();
      } else {
        c.stream.shutdown_write();
      }
      write_file(c, file_of("late"), 0, 4);
      world.run_until([&] { return c.peer.ended; });
      CHECK((c.peer.received == bytes));
      CHECK(c.writes.complete_and_in_order());
      CHECK_FALSE(c.writes.entries[0].error);
      CHECK(c.writes.entries[1].error == errc::shut_down);
    }
  });
}

TEST_CASE("abort and a reset in the middle of a file fail its write with what was accepted") {
  for_each_mode([](World& world) {
    for (const bool aborts : {true, false}) {
      CAPTURE(aborts);
      Connection& c = world.open_resettable();
      bool closed = false;
      const SharedFile file = file_of(pattern(16'000'000));
      c.write("head");
      write_file(c, file, 0, 16'000'000);
      c.stream.write_file({std::make_shared<ProgramsFile>("next", &closed), 0, 4});
      c.write("tail");
      std::size_t progress = 0;
      world.run_until([&] {
        const bool same = progress == c.events.progress && progress != 0;
        progress = c.events.progress;
        return same;
      });
      world.settle();
      if (aborts) {
        c.stream.abort();
      } else {
        c.peer.reset();
      }
      world.run_until([&] { return c.events.closed(); });
      REQUIRE(c.writes.entries.size() == 3);
      CHECK(c.writes.complete_and_in_order());
      if (aborts) {
        CHECK(c.writes.entries[1].error == errc::cancelled);
      } else {
        CHECK(c.writes.entries[1].error == errc::connection_lost);
      }
      CHECK(c.writes.entries[1].accepted == c.events.progress - 4);
      CHECK(c.events.unsent == "tail");
      CHECK(file.use_count() == 1);
      CHECK(closed);
    }
  });
}

TEST_CASE("a large sparse file arrives exactly") {
  for_each_kernel_transport([](World& world) {
    constexpr std::uint64_t kSize = std::uint64_t{1} << (test::kSanitized ? 26 : 30);
    const test::TemporaryDirectory directory;
    const SharedFile file = [&]() -> SharedFile {
      auto made = system_files().open(directory.file("sparse"), OpenMode::create_new).value_or_throw();
      for (std::uint64_t at = 0; at < kSize; at += kSize / 7) {
        if (!made->write_at(chain_of(pattern(5000)), at).ok()) FAIL("the file cannot be written");
      }
      if (::truncate(directory.file("sparse").c_str(), kSize) != 0) FAIL("the file cannot be enlarged");
      return made;
    }();
    Connection& c = world.open();
    const Slice expected = file->map(0, kSize).value_or_throw();
    std::size_t received = 0;
    bool exact = true;
    std::thread reader([&, socket = c.peer.take_socket()] {
      std::vector<char> buffer(1 << 20);
      ssize_t got = 0;
      while ((got = ::recv(socket.descriptor(), buffer.data(), buffer.size(), 0)) > 0) {
        const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
        exact = exact && bytes == expected.view().substr(received, bytes.size());
        received += bytes.size();
      }
    });
    const CopyScope scope;
    write_file(c, file, 0, kSize);
    c.stream.close(std::chrono::seconds(50));
    // An exception must not pass a thread that runs.
    for (int ticks = 0; !c.events.closed() && ticks < 1'000'000; ++ticks) {
      world.turn(std::chrono::milliseconds(1));
    }
    if (!c.events.closed()) world.destroy_loop();
    reader.join();
    CHECK(received == kSize);
    CHECK(exact);
    CHECK(c.writes.entries[0].accepted == kSize);
    CHECK(scope.copied().total() == 0);
  });
}

}  // namespace linkspan::conformance
