// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// linkspan-blocks: a block service and its client.
#include <fmt/format.h>
#include <pthread.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "client.hpp"
#include "limits.hpp"
#include "linkspan/base/log.hpp"
#include "linkspan/base/version.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/loop/files.hpp"
#include "linkspan/transport/transport.hpp"
#include "server.hpp"

namespace linkspan::blocks {
namespace {

struct CommandLine {
  std::string address = "127.0.0.1:7070";
  std::string local;
  std::string directory = "blocks";
  std::string transport = "auto";
  std::size_t loops = 1;
  std::size_t chunk_bytes = std::size_t{1} << 20;
  bool no_checksum = false;
  bool verbose = false;
  std::string file;
  std::string name;
  std::vector<std::string> names;
  unsigned rounds = 5;
  bool row = false;
};

int fail(const Error& error) {
  fmt::print(stderr, "linkspan-blocks: {}\n", error.message());
  return 1;
}

int serve(const CommandLine& line) {
  // Blocked before any thread starts, so that all of them leave these signals to sigwait below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  BlockServerOptions options;
  options.address = line.address;
  options.local = line.local;
  options.directory = line.directory;
  options.transport = line.transport;
  options.loops = line.loops;
  options.chunk_bytes = line.chunk_bytes;
  options.checksum = !line.no_checksum;
  auto server = BlockServer::start(options);
  if (!server) return fail(server.error());
  fmt::print("listening on {} transport {} directory {}\n", server.value()->local_endpoint().to_string(),
             server.value()->transport_name(), line.directory);
  std::fflush(stdout);

  int signal = 0;
  sigwait(&signals, &signal);
  fmt::print("stopping\n");
  std::fflush(stdout);
  server.value()->stop(kStopDeadline);
  return 0;
}

Result<std::unique_ptr<BlockClient>> connect(const CommandLine& line) {
  BlockClientOptions options;
  options.address = line.address;
  options.local = line.local;
  options.transport = line.transport;
  options.chunk_bytes = line.chunk_bytes;
  options.checksum = !line.no_checksum;
  return BlockClient::create(std::move(options));
}

int report(const char* action, const std::string& name, const Result<Transfer>& transfer) {
  if (!transfer) return fail(transfer.error());
  const Transfer& done = transfer.value();
  const std::string checksum = done.crc32 ? fmt::format("crc32 {:08x}", *done.crc32) : "no checksum";
  fmt::print("{} {}: {} bytes, {}, {:.1f} MB/s\n", action, name, done.size_bytes, checksum,
             done.megabytes_per_second());
  return 0;
}

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

int put(const CommandLine& line) {
  auto client = connect(line);
  if (!client) return fail(client.error());
  const std::string name = line.name.empty() ? file_name(line.file) : line.name;
  return report("put", name, client.value()->put(line.file, name));
}

int get(const CommandLine& line) {
  auto client = connect(line);
  if (!client) return fail(client.error());
  const std::string file = line.file.empty() ? line.name : line.file;
  return report("get", line.name, client.value()->get(line.name, file));
}

// Several at once: a line for each, and 1 if any has failed.
int report_all(const char* action, const std::vector<BlockClient::Item>& items,
               const std::vector<Result<Transfer>>& results) {
  int status = 0;
  for (std::size_t i = 0; i < items.size(); ++i) status |= report(action, items[i].name, results[i]);
  return status;
}

int put_all(const CommandLine& line) {
  auto client = connect(line);
  if (!client) return fail(client.error());
  std::vector<BlockClient::Item> items;
  for (const std::string& file : line.names) items.push_back({file, file_name(file)});
  return report_all("put", items, client.value()->put_all(items));
}

int get_all(const CommandLine& line) {
  auto client = connect(line);
  if (!client) return fail(client.error());
  std::vector<BlockClient::Item> items;
  for (const std::string& name : line.names) items.push_back({line.file + "/" + name, name});
  return report_all("get", items, client.value()->get_all(items));
}

int list(const CommandLine& line) {
  auto client = connect(line);
  if (!client) return fail(client.error());
  auto names = client.value()->list();
  if (!names) return fail(names.error());
  for (const std::string& name : names.value()) fmt::print("{}\n", name);
  return 0;
}

int remove(const CommandLine& line) {
  auto client = connect(line);
  if (!client) return fail(client.error());
  int status = 0;
  for (const std::string& name : line.names) {
    if (Status removed = client.value()->remove(name); !removed) status = fail(removed.error());
  }
  return status;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Copies by client and server together.
struct Copies {
  std::uint64_t in_the_path = 0;  // framing, marshalling and write
  std::uint64_t receive = 0;
  std::uint64_t tails = 0;
};

Result<Copies> count_copies(BlockClient& client) {
  const CopyCounts own = CopyLedger::total();
  auto reply = client.server_copy_counts();
  if (!reply) return reply.error();
  const ServerCopyCounts& server = reply.value();
  return Copies{own[CopyPlace::framing] + own[CopyPlace::marshal] + own[CopyPlace::write] +
                    server.framing_bytes() + server.marshal_bytes() + server.write_bytes(),
                own[CopyPlace::receive] + server.receive_bytes(),
                own[CopyPlace::below_threshold] + server.below_threshold_bytes()};
}

// A file of random bytes that goes away with it.
class SampleFile {
 public:
  static Result<std::unique_ptr<SampleFile>> make(std::size_t size_bytes) {
    const Environment& environment = Environment::system();
    std::string text(size_bytes, '\0');
    std::mt19937_64 generator(environment.random.next());
    for (std::size_t i = 0; i + 8 <= size_bytes; i += 8) {
      const std::uint64_t value = generator();
      std::memcpy(text.data() + i, &value, sizeof(value));
    }
    auto sample = std::make_unique<SampleFile>();
    const std::string path = std::filesystem::temp_directory_path() /
                             fmt::format("linkspan-bench-{:016x}", environment.random.next());
    auto file = environment.files.open(path, OpenMode::create_new);
    if (!file) return file.error();
    sample->path_ = path;
    if (Status written = file.value()->write_at(Chain(Slice::adopt(std::move(text))), 0); !written) {
      return written.error();
    }
    return sample;
  }
  ~SampleFile() {
    if (!path_.empty()) static_cast<void>(Environment::system().files.remove(path_));
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int bench(CommandLine line) {
  std::unique_ptr<SampleFile> sample;
  if (line.file.empty()) {
    auto made = SampleFile::make(std::size_t{64} << 20);
    if (!made) return fail(made.error());
    sample = std::move(made).value();
    line.file = sample->path();
  }
  auto made = connect(line);
  if (!made) return fail(made.error());
  BlockClient& client = *made.value();
  const std::string name = line.name.empty() ? "bench-" + file_name(line.file) : line.name;
  std::vector<double> puts;
  std::vector<double> gets;
  std::uint64_t payload = 0;
  auto before = count_copies(client);
  if (!before) return fail(before.error());
  for (unsigned round = 0; round < line.rounds; ++round) {
    const auto stored = client.put(line.file, name);
    if (!stored) return fail(stored.error());
    const auto fetched = client.get(name, std::nullopt);
    if (!fetched) return fail(fetched.error());
    puts.push_back(stored.value().megabytes_per_second());
    gets.push_back(fetched.value().megabytes_per_second());
    payload += stored.value().size_bytes + fetched.value().size_bytes;
  }
  auto after = count_copies(client);
  if (!after) return fail(after.error());
  if (Status removed = client.remove(name); !removed) return fail(removed.error());

  const std::uint64_t in_the_path = after.value().in_the_path - before.value().in_the_path;
  const std::uint64_t receive = after.value().receive - before.value().receive;
  const std::uint64_t tails = after.value().tails - before.value().tails;
  const double share =
      payload == 0 ? 0 : 100.0 * static_cast<double>(receive + tails) / static_cast<double>(payload);
  if (line.row) {
    fmt::print("{:.0f} {:.0f} {} {} {} {:.3f}\n", median(puts), median(gets), in_the_path, receive, tails,
               share);
    return 0;
  }
  fmt::print("{} rounds of {} bytes in chunks of {}\n", line.rounds, payload / line.rounds / 2,
             line.chunk_bytes);
  fmt::print("put {:.1f} MB/s, get {:.1f} MB/s (medians)\n", median(puts), median(gets));
  fmt::print("copied in framing, marshalling and write: {} bytes\n", in_the_path);
  fmt::print("receive copy-outs {} bytes, tails below the threshold {} bytes: {:.3f} % of the payload\n",
             receive, tails, share);
  return 0;
}

int main(int argc, char** argv) {
  CommandLine line;
  CLI::App app("Stores and fetches blocks of any size without copying them in user space.",
               "linkspan-blocks");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", fmt::format("{}.{}.{}", LINKSPAN_VERSION_MAJOR, LINKSPAN_VERSION_MINOR,
                                                LINKSPAN_VERSION_PATCH));
  app.add_option("--address", line.address, "HOST:PORT or unix:PATH; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--local", line.local,
                 "a unix socket: serve passes files over it, get, get-all and bench read through them");
  app.add_option("--transport", line.transport, "io_uring, epoll, asio or auto")->capture_default_str();
  app.add_option("--chunk", line.chunk_bytes, "bytes a frame carries, 4096 to 16777216")
      ->check(CLI::Range(kMinChunkBytes, kMaxChunkBytes))
      ->capture_default_str();
  app.add_flag("--no-checksum", line.no_checksum, "neither compute nor check CRC-32");
  app.add_flag("--verbose", line.verbose, "log what the library decides");
  app.add_option("--directory", line.directory, "serve: where blocks are kept; created when it is missing")
      ->capture_default_str();
  app.add_option("--loops", line.loops, "serve: threads that serve connections, 1 to 1024")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();

  auto* serve_command = app.add_subcommand("serve", "Keeps blocks as files in a directory");
  auto* put_command = app.add_subcommand("put", "Stores a file");
  put_command->add_option("FILE", line.file)->required();
  put_command->add_option("NAME", line.name, "the file's own name by default");
  auto* get_command = app.add_subcommand("get", "Fetches a block into a file");
  get_command->add_option("NAME", line.name)->required();
  get_command->add_option("FILE", line.file, "called as the block by default");
  auto* put_all_command = app.add_subcommand("put-all", "Stores files under their own names, 8 at a time");
  put_all_command->add_option("FILES", line.names)->required();
  auto* get_all_command = app.add_subcommand("get-all", "Fetches blocks into a directory, 8 at a time");
  get_all_command->add_option("DIRECTORY", line.file)->required();
  get_all_command->add_option("NAMES", line.names)->required();
  auto* list_command = app.add_subcommand("list", "Prints the names of all blocks");
  auto* remove_command = app.add_subcommand("remove", "Removes blocks");
  remove_command->add_option("NAMES", line.names)->required();
  auto* bench_command = app.add_subcommand("bench", "Puts a file and gets it back, several times");
  bench_command->add_option("FILE", line.file, "64 MiB of random bytes by default");
  bench_command->add_option("NAME", line.name, "removed afterwards; bench-FILE by default");
  bench_command->add_option("--rounds", line.rounds)->check(CLI::Range(1u, 1000u))->capture_default_str();
  bench_command->add_flag("--row", line.row, "print one line of figures for a table");

  auto* transports_command = app.add_subcommand("transports", "Prints the transports of this build");

  CLI11_PARSE(app, argc, argv);
  if (line.verbose) set_log_level(LogLevel::info);
  if (transports_command->parsed()) {
    for (const std::string_view transport : transport_names()) fmt::print("{}\n", transport);
    return 0;
  }
  if (serve_command->parsed()) return serve(line);
  if (put_command->parsed()) return put(line);
  if (get_command->parsed()) return get(line);
  if (put_all_command->parsed()) return put_all(line);
  if (get_all_command->parsed()) return get_all(line);
  if (list_command->parsed()) return list(line);
  if (remove_command->parsed()) return remove(line);
  return bench(line);
}

}  // namespace
}  // namespace linkspan::blocks

int main(int argc, char** argv) {
  return linkspan::blocks::main(argc, argv);
}
