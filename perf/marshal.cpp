// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A message with a small header and a data buffer of 4 KiB to 100 MiB, out to bytes, or to a socket, and
// back. The buffer exists before, as pages of a cache do, in memory or in a mapped file; what a service would
// do with the bytes then is left out, unless the row says `summed`: that reads all of them. Baselines write
// to memory that was used before.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/buffer/mapped_file.hpp"
#include "linkspan/marshal/protobuf.hpp"
#include "marshal.pb.h"
#include "perf/support/self_connection.hpp"

namespace linkspan::perf {
namespace {

constexpr std::size_t kLargestBytes = std::size_t{100} << 20;
constexpr std::size_t kHeaderMostBytes = 128;

enum class Source { memory, mapped, mapped_cold };

constexpr const char* to_string(Source source) {
  switch (source) {
    case Source::memory: return "memory";
    case Source::mapped: return "mapped";
    case Source::mapped_cold: break;
  }
  return "mapped, cold";
}

// In the page cache, for ever.
int source_file() {
  static const int file = [] {
    const int made = ::memfd_create("data", MFD_CLOEXEC);
    const std::string piece(std::size_t{1} << 20, 's');
    for (std::size_t at = 0; at < kLargestBytes; at += piece.size()) {
      require(::write(made, piece.data(), piece.size()) == static_cast<ssize_t>(piece.size()), "memfd");
    }
    return made;
  }();
  return file;
}

std::uint64_t sum(std::span<const std::byte> bytes);

// The data buffer of a message. What is cold is mapped for each message, and unmapped afterwards: whoever
// reads it waits for its pages.
Slice data_of(Source source, std::size_t bytes) {
  static const Slice memory = Slice::adopt(std::string(kLargestBytes, 's'));
  static const Slice mapped = [] {
    Slice made = map_file(source_file(), 0, kLargestBytes).value_or_throw();
    benchmark::DoNotOptimize(sum(made.bytes()));
    return made;
  }();
  switch (source) {
    case Source::memory: return memory.slice(0, bytes);
    case Source::mapped: return mapped.slice(0, bytes);
    case Source::mapped_cold: break;
  }
  return map_file(source_file(), 0, bytes).value_or_throw();
}

// Where baselines write to: one array for all of them.
std::span<std::byte> destination() {
  static std::vector<std::byte> array(kLargestBytes + kHeaderMostBytes, std::byte{1});
  return array;
}

template <class M>
void set_header(M& message) {
  message.set_session(0x1234567890);
  message.set_block("block-0000-1111-2222-3333-444455556666, of a name that is usual");
  message.set_offset(1 << 20);
  message.set_last(true);
}

const ProtobufMarshaller<ReadResponse>& responses() {
  static const auto marshaller = [] {
    ProtobufOptions options;
    options.limits.max_message_bytes = 2 * kLargestBytes;
    options.limits.max_payload_bytes = 2 * kLargestBytes;
    return ProtobufMarshaller<ReadResponse>::create(std::move(options)).value_or_throw();
  }();
  return marshaller;
}

std::uint64_t sum(std::span<const std::byte> bytes) {
  std::uint64_t total = 0;
  std::uint64_t word = 0;
  for (; bytes.size() >= sizeof(word); bytes = bytes.subspan(sizeof(word))) {
    std::memcpy(&word, bytes.data(), sizeof(word));  // tidy: moves handles, not bytes
    total += word;
  }
  for (const std::byte byte : bytes) total += static_cast<std::uint64_t>(byte);
  return total;
}

std::uint64_t sum(const Chain& chain) {
  std::uint64_t total = 0;
  for (const Slice& slice : chain) total += sum(slice.bytes());
  return total;
}

Envelope<ReadResponse> envelope(Slice data) {
  Envelope<ReadResponse> made;
  set_header(made.message);
  made.message.set_data(made.payloads.add(Chain(std::move(data))));
  return made;
}

// --- out -------------------------------------------------------------------------------------------------

struct Job {
  Source source;
  std::size_t bytes;
  bool summed;
};

Chain referenced(ChainWriter& writer, const Job& job) {
  responses().write(envelope(data_of(job.source, job.bytes)), writer).value_or_throw();
  return writer.take();
}

void write_referenced(benchmark::State& state, const Job& job) {
  ChainWriter writer(heap_allocator());
  for (auto _ : state) {
    const Chain encoded = referenced(writer, job);
    benchmark::DoNotOptimize(job.summed ? sum(encoded) : encoded.size());
  }
}

// The published mistake: a sink that is an array makes references into copies.
void write_into_array(benchmark::State& state, const Job& job) {
  ChainWriter writer(heap_allocator());
  for (auto _ : state) {
    const Chain encoded = referenced(writer, job);
    const std::span<std::byte> to = destination().first(encoded.size());
    encoded.copy_to(to);
    benchmark::DoNotOptimize(job.summed ? sum(to) : encoded.size());
  }
}

// One copy: what protobuf does with data that are in its string already. A mapping is no string, and a string
// made of it would be a second copy: so there the header is protobuf's, and the data are copied behind it.
class Serialized {
 public:
  explicit Serialized(const Job& job) : job_(job) {
    set_header(message_);
    if (job.source == Source::memory) message_.set_data(std::string(job.bytes, 's'));
  }

  std::span<const std::byte> once() {
    const std::span<std::byte> to = destination();
    std::size_t size = message_.ByteSizeLong();
    message_.SerializeToArray(to.data(), static_cast<int>(size));
    if (job_.source != Source::memory) {
      const Slice data = data_of(job_.source, job_.bytes);
      ChainWriter writer(heap_allocator());
      writer.write_varint(15 << 3 | 2);
      writer.write_varint(data.size());
      const Chain field = writer.take();
      field.copy_to(to.subspan(size, field.size()));
      size += field.size();
      copy_bytes(to.data() + size, data.data(), data.size(), CopyPlace::user);
      size += data.size();
    }
    return to.first(size);
  }

 private:
  Job job_;
  PlainResponse message_;
};

void write_one_copy(benchmark::State& state, const Job& job) {
  Serialized serialized(job);
  for (auto _ : state) {
    const std::span<const std::byte> encoded = serialized.once();
    const Chain chain(Slice::immortal(encoded));
    benchmark::DoNotOptimize(job.summed ? sum(chain) : chain.size());
  }
}

// And then read out of the array in pieces, as a stream would: two copies.
void write_in_pieces(benchmark::State& state, const Job& job) {
  Serialized serialized(job);
  std::array<std::byte, 4096> piece{};
  for (auto _ : state) {
    std::uint64_t total = 0;
    for (std::span<const std::byte> left = serialized.once(); !left.empty();) {
      const std::size_t size = std::min(left.size(), piece.size());
      copy_bytes(piece.data(), left.data(), size, CopyPlace::user);
      benchmark::DoNotOptimize(piece.data());
      if (job.summed) total += sum(std::span(piece).first(size));
      left = left.subspan(size);
    }
    benchmark::DoNotOptimize(total);
  }
}

// --- to a socket -----------------------------------------------------------------------------------------

void send_referenced(benchmark::State& state, const Job& job) {
  SelfConnection connection(state, tcp_pair());
  ChainWriter writer(heap_allocator());
  std::array<iovec, 64> vectors;
  for (auto _ : state) {
    Chain left = referenced(writer, job);
    while (!left.empty()) {
      const std::size_t exported = left.export_iovec(vectors).count;
      left.drop_front(connection.send_gathered(std::span(vectors).first(exported)));
    }
  }
}

void send_one_copy(benchmark::State& state, const Job& job) {
  SelfConnection connection(state, tcp_pair());
  Serialized serialized(job);
  for (auto _ : state) {
    std::span<const std::byte> left = serialized.once();
    while (!left.empty()) left = left.subspan(connection.send(left));
  }
}

// --- in --------------------------------------------------------------------------------------------------

// As it comes from a socket: slices of 64 KiB.
Chain received(const std::string& encoded) {
  constexpr std::size_t kSliceBytes = 65'536;
  Chain chain;
  for (std::string_view left = encoded; !left.empty();
       left.remove_prefix(std::min(left.size(), kSliceBytes))) {
    chain.append(Slice::immortal(left.substr(0, kSliceBytes)));
  }
  return chain;
}

std::string encoded_response(std::size_t bytes) {
  PlainResponse message;
  set_header(message);
  message.set_data(std::string(bytes, 's'));
  return message.SerializeAsString();
}

void read_referenced(benchmark::State& state, const Job& job) {
  const std::string encoded = encoded_response(job.bytes);
  for (auto _ : state) {
    auto message = responses().read(received(encoded));
    if (!message) return state.SkipWithError("read");
    const Chain data = message.value().payloads.take(message.value().message.data());
    benchmark::DoNotOptimize(job.summed ? sum(data) : data.size());
  }
}

void read_copied(benchmark::State& state, const Job& job) {
  const std::string encoded = encoded_response(job.bytes);
  PlainResponse message;  // keeps its string's memory
  message.set_data(std::string(job.bytes, 'd'));
  for (auto _ : state) {
    const Chain chain = received(encoded);
    BufferChainInputStream stream(chain);
    if (!message.ParseFromZeroCopyStream(&stream)) return state.SkipWithError("parse");
    const std::span<const std::byte> data = std::as_bytes(std::span(message.data()));
    benchmark::DoNotOptimize(job.summed ? sum(data) : data.size());
  }
}

// --- small messages without payload ------------------------------------------------------------------------

void write_small(benchmark::State& state) {
  ChainWriter writer(heap_allocator());
  for (auto _ : state) {
    Envelope<ReadResponse> made;
    set_header(made.message);
    if (!responses().write(std::move(made), writer)) return state.SkipWithError("write");
    const Chain encoded = writer.take();
    benchmark::DoNotOptimize(encoded.size());
  }
}

void write_small_plainly(benchmark::State& state) {
  ChainWriter writer(heap_allocator());
  std::array<std::byte, 256> array;
  for (auto _ : state) {
    PlainResponse message;
    set_header(message);
    const std::size_t size = message.ByteSizeLong();
    message.SerializeToArray(array.data(), static_cast<int>(array.size()));
    writer.write(std::span(array).first(size));
    const Chain encoded = writer.take();
    benchmark::DoNotOptimize(encoded.size());
  }
}

void read_small(benchmark::State& state) {
  const std::string encoded = encoded_response(0);
  for (auto _ : state) {
    auto message = responses().read(Chain(Slice::immortal(std::string_view(encoded))));
    if (!message) return state.SkipWithError("read");
    benchmark::DoNotOptimize(message.value().message.offset());
  }
}

void read_small_plainly(benchmark::State& state) {
  const std::string encoded = encoded_response(0);
  for (auto _ : state) {
    PlainResponse message;
    if (!message.ParseFromString(encoded)) return state.SkipWithError("parse");
    benchmark::DoNotOptimize(message.offset());
  }
}

Directory directory() {
  Directory made;
  made.set_name("/srv/blocks/0000");
  for (std::uint64_t i = 0; i < 5; ++i) {
    Directory::Entry& entry = *made.add_entries();
    entry.set_name("block-0000-1111-2222-3333");
    entry.set_bytes(i << 20);
  }
  return made;
}

void read_nested(benchmark::State& state) {
  const std::string encoded = directory().SerializeAsString();
  static const auto directories = ProtobufMarshaller<Directory>::create().value_or_throw();
  for (auto _ : state) {
    auto message = directories.read(Chain(Slice::immortal(std::string_view(encoded))));
    if (!message) return state.SkipWithError("read");
    benchmark::DoNotOptimize(message.value().message.entries_size());
  }
}

void read_nested_plainly(benchmark::State& state) {
  const std::string encoded = directory().SerializeAsString();
  for (auto _ : state) {
    Directory message;
    if (!message.ParseFromString(encoded)) return state.SkipWithError("parse");
    benchmark::DoNotOptimize(message.entries_size());
  }
}

struct Variant {
  const char* name;
  void (*run)(benchmark::State&, const Job& job);
};

using Kibs = std::initializer_list<std::size_t>;
constexpr Kibs kAllKibs = {4, 64, 256, 1024, 10'240, 51'200, 102'400};
constexpr Kibs kSomeKibs = {64, 1024, 10'240, 102'400};

void add_cases(std::string_view direction, Source source, Kibs kibs, std::initializer_list<bool> sums,
               std::span<const Variant> variants) {
  for (const Variant& variant : variants) {
    for (const std::size_t kib : kibs) {
      for (const bool summed : sums) {
        const Job job{source, kib * 1024, summed};
        add({.variant = variant.name,
             .parameters = {{"direction", direction},
                            {"source", to_string(source)},
                            {"bytes", static_cast<std::int64_t>(job.bytes)},
                            {"summed", summed ? "yes" : "no"}},
             .run = [=, run = variant.run](benchmark::State& state) { run(state, job); },
             .quick = (kib == 4 || kib == 1024) && !summed});
      }
    }
  }
}

void add_small(const char* variant, const char* direction, void (*run)(benchmark::State&)) {
  add({.variant = variant,
       .parameters = {{"direction", direction}, {"source", "memory"}, {"bytes", 0}, {"summed", "no"}},
       .run = run,
       .quick = true,
       .instructions = true});
}

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  constexpr Variant kOut[] = {{"linkspan", write_referenced},
                              {"one copy", write_one_copy},
                              {"two copies", write_in_pieces},
                              {"linkspan into an array", write_into_array}};
  constexpr Variant kIn[] = {{"linkspan", read_referenced}, {"one copy", read_copied}};
  add_small("linkspan", "out", write_small);
  add_small("one copy", "out", write_small_plainly);
  add_small("linkspan", "in", read_small);
  add_small("one copy", "in", read_small_plainly);
  add_small("linkspan", "in, nested", read_nested);
  add_small("one copy", "in, nested", read_nested_plainly);
  constexpr Variant kToSocket[] = {{"linkspan", send_referenced}, {"one copy", send_one_copy}};
  const std::span<const Variant> referenced_or_copied(kOut, 2);
  add_cases("out", Source::memory, kAllKibs, {false, true}, kOut);
  add_cases("in", Source::memory, kAllKibs, {false, true}, kIn);
  for (const Source source : {Source::mapped, Source::mapped_cold}) {
    add_cases("out", source, kSomeKibs, {false, true}, referenced_or_copied);
  }
  for (const Source source : {Source::memory, Source::mapped}) {
    add_cases("out, to a socket", source, kSomeKibs, {false}, kToSocket);
  }
  return run(argc, argv);
}
