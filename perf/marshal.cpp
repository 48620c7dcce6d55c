// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A message with a small header and a data buffer of 4 KiB to 100 MiB, out to bytes and back. The buffer
// exists before, as pages of a cache do; what a service would do with the bytes then is left out, unless the
// row says `summed`: that reads all of them. Baselines write to memory that was used before.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/marshal/protobuf.hpp"
#include "marshal.pb.h"
#include "perf/support/rounds.hpp"

namespace linkspan::perf {
namespace {

constexpr std::size_t kLargestBytes = std::size_t{100} << 20;
constexpr std::size_t kHeaderMostBytes = 128;

// The data buffer of all cases.
const Slice& source() {
  static const Slice slice = Slice::adopt(std::string(kLargestBytes, 's'));
  return slice;
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

Envelope<ReadResponse> envelope(std::size_t bytes) {
  Envelope<ReadResponse> made;
  set_header(made.message);
  made.message.set_data(made.payloads.add(Chain(source().slice(0, bytes))));
  return made;
}

// --- out -------------------------------------------------------------------------------------------------

void write_referenced(benchmark::State& state, std::size_t bytes, bool summed) {
  ChainWriter writer(heap_allocator());
  for (auto _ : state) {
    if (!responses().write(envelope(bytes), writer)) return state.SkipWithError("write");
    const Chain encoded = writer.take();
    benchmark::DoNotOptimize(summed ? sum(encoded) : encoded.size());
  }
}

// The published mistake: a sink that is an array makes references into copies.
void write_into_array(benchmark::State& state, std::size_t bytes, bool summed) {
  ChainWriter writer(heap_allocator());
  std::vector<std::byte> array(bytes + kHeaderMostBytes, std::byte{1});
  for (auto _ : state) {
    if (!responses().write(envelope(bytes), writer)) return state.SkipWithError("write");
    const Chain encoded = writer.take();
    const std::span<std::byte> to = std::span(array).first(encoded.size());
    encoded.copy_to(to);
    benchmark::DoNotOptimize(summed ? sum(to) : encoded.size());
  }
}

// protobuf alone, with the data in its string already: one copy.
struct Serialized {
  explicit Serialized(std::size_t bytes) : array(bytes + kHeaderMostBytes, std::byte{1}) {
    set_header(message);
    message.set_data(std::string(bytes, 's'));
  }
  std::span<const std::byte> once() {
    const std::size_t size = message.ByteSizeLong();
    message.SerializeToArray(array.data(), static_cast<int>(size));
    return std::span(array).first(size);
  }
  PlainResponse message;
  std::vector<std::byte> array;
};

void write_one_copy(benchmark::State& state, std::size_t bytes, bool summed) {
  Serialized serialized(bytes);
  for (auto _ : state) {
    const std::span<const std::byte> encoded = serialized.once();
    const Chain chain(Slice::immortal(encoded));
    benchmark::DoNotOptimize(summed ? sum(chain) : chain.size());
  }
}

// And then read out of the array in pieces, as a stream would: two copies.
void write_in_pieces(benchmark::State& state, std::size_t bytes, bool summed) {
  Serialized serialized(bytes);
  std::array<std::byte, 4096> piece{};
  for (auto _ : state) {
    std::uint64_t total = 0;
    for (std::span<const std::byte> left = serialized.once(); !left.empty();) {
      const std::size_t size = std::min(left.size(), piece.size());
      copy_bytes(piece.data(), left.data(), size, CopyPlace::user);
      benchmark::DoNotOptimize(piece.data());
      if (summed) total += sum(std::span(piece).first(size));
      left = left.subspan(size);
    }
    benchmark::DoNotOptimize(total);
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

void read_referenced(benchmark::State& state, std::size_t bytes, bool summed) {
  const std::string encoded = encoded_response(bytes);
  for (auto _ : state) {
    auto message = responses().read(received(encoded));
    if (!message) return state.SkipWithError("read");
    const Chain data = message.value().payloads.take(message.value().message.data());
    benchmark::DoNotOptimize(summed ? sum(data) : data.size());
  }
}

void read_copied(benchmark::State& state, std::size_t bytes, bool summed) {
  const std::string encoded = encoded_response(bytes);
  PlainResponse message;  // keeps its string's memory
  for (auto _ : state) {
    const Chain chain = received(encoded);
    BufferChainInputStream stream(chain);
    if (!message.ParseFromZeroCopyStream(&stream)) return state.SkipWithError("parse");
    benchmark::DoNotOptimize(summed ? sum(std::as_bytes(std::span(message.data()))) : message.data().size());
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
  void (*run)(benchmark::State&, std::size_t bytes, bool summed);
};

void add_cases(std::string_view direction, std::span<const Variant> variants) {
  for (const Variant& variant : variants) {
    for (const std::size_t kib : {4, 64, 256, 1024, 10'240, 51'200, 102'400}) {
      for (const bool summed : {false, true}) {
        add({.variant = variant.name,
             .parameters = {{"direction", direction},
                            {"bytes", static_cast<std::int64_t>(kib * 1024)},
                            {"summed", summed ? "yes" : "no"}},
             .run = [=, run = variant.run](benchmark::State& state) { run(state, kib * 1024, summed); },
             .quick = (kib == 4 || kib == 1024) && !summed});
      }
    }
  }
}

void add_small(const char* variant, const char* direction, void (*run)(benchmark::State&)) {
  add({.variant = variant,
       .parameters = {{"direction", direction}, {"bytes", 0}, {"summed", "no"}},
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
  add_cases("out", kOut);
  add_cases("in", kIn);
  return run(argc, argv);
}
