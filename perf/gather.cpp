// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Sending pieces of memory with one gathered write, against copying them into one buffer and sending that:
// where kReferenceThreshold comes from. A message is a number of slices; `gather` references them in a Chain
// and exports it, `copy` copies them. `hot` sends the same slices again and again, `cold` slices from all
// over a memory that no cache holds.
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "perf/support/self_connection.hpp"

namespace linkspan::perf {
namespace {

constexpr std::size_t kMemoryBytes = std::size_t{256} << 20;
constexpr std::size_t kBufferBytes = std::size_t{16} << 20;

// What all cases send from. The kernel reads it once, unmeasured: on some virtual machines its first access
// to a page takes microseconds, and what a service sends has often come from the kernel.
class Memory {
 public:
  [[nodiscard]] static Memory& instance() {
    static Memory memory;
    return memory;
  }
  [[nodiscard]] const Slice& pieces() const { return pieces_; }
  [[nodiscard]] std::span<std::byte> buffer(std::size_t bytes) { return buffer_.writable().first(bytes); }

 private:
  Memory() : pieces_(make(kMemoryBytes).freeze(kMemoryBytes)), buffer_(make(kBufferBytes)) {}

  static Block make(std::size_t bytes) {
    Block block = heap_allocator().allocate(bytes);
    require(static_cast<bool>(block), "memory");
    std::memset(block.data(), 'x', bytes);
    const int sink = ::memfd_create("sink", MFD_CLOEXEC);
    constexpr std::size_t kPart = std::size_t{1} << 20;
    for (std::size_t at = 0; at < bytes; at += kPart) {
      require(::pwrite(sink, block.data() + at, kPart, 0) == ssize_t{kPart}, "memfd");
    }
    ::close(sink);
    return block;
  }

  Slice pieces_;
  Block buffer_;
};

struct Source {
  // The next one of `pieces`, in an order without neighbours that comes to each of them once in a lap. It
  // goes on where the case before it has stopped, so that it does not meet what that one has left in the
  // caches.
  [[nodiscard]] Slice next() const {
    static std::uint32_t position = 0;
    position = position * 1664525 + 1013904223;
    return Memory::instance().pieces().slice((position & (pieces - 1)) * bytes, bytes);
  }

  std::size_t bytes;
  std::size_t pieces;  // a power of two
};

void gather(benchmark::State& state, SelfConnection& connection, const Source& source, std::size_t count) {
  std::vector<iovec> vectors(count);
  Chain chain;
  for (auto _ : state) {
    for (std::size_t i = 0; i < count; ++i) chain.append(source.next());
    while (!chain.empty()) {
      const std::size_t exported = chain.export_iovec(vectors).count;
      chain.drop_front(connection.send_gathered(std::span(vectors).first(exported)));
    }
  }
}

void copy(benchmark::State& state, SelfConnection& connection, const Source& source, std::size_t count) {
  const std::span<std::byte> buffer = Memory::instance().buffer(count * source.bytes);
  for (auto _ : state) {
    std::byte* to = buffer.data();
    for (std::size_t i = 0; i < count; ++i, to += source.bytes) {
      copy_bytes(to, source.next().data(), source.bytes, CopyPlace::user);
    }
    for (std::span<const std::byte> left = buffer; !left.empty();) left = left.subspan(connection.send(left));
  }
}

void add_cases(std::string_view socket, Ends (*make_ends)()) {
  const struct {
    const char* name;
    void (*run)(benchmark::State&, SelfConnection&, const Source&, std::size_t);
  } variants[] = {{"gather", gather}, {"copy", copy}};
  for (const auto& variant : variants) {
    for (const std::string_view heat : {"hot", "cold"}) {
      for (const std::size_t bytes : {64, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536}) {
        for (const std::size_t count : {1, 4, 16, 64, 256}) {
          const Source source{bytes, heat == "hot" ? count : kMemoryBytes / bytes};
          add({.variant = variant.name,
               .parameters = {{"socket", socket},
                              {"source", heat},
                              {"bytes", static_cast<std::int64_t>(bytes)},
                              {"slices", static_cast<std::int64_t>(count)}},
               .run =
                   [=, run = variant.run](benchmark::State& state) {
                     SelfConnection connection(state, make_ends());
                     run(state, connection, source, count);
                     const auto messages = static_cast<std::size_t>(state.iterations());
                     if (connection.discard() != messages * count * bytes) {
                       state.SkipWithError("bytes are missing");
                     }
                   },
               .quick = count == 16 && (bytes == 256 || bytes == 2048 || bytes == 16384)});
        }
      }
    }
  }
}

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  add_cases("unix", unix_pair);
  add_cases("tcp, reno", tcp_pair);
  return run(argc, argv);
}
