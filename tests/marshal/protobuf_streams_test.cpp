// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/marshal/protobuf_streams.hpp"

#include <doctest/doctest.h>
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>

#include "marshal/support.hpp"
#include "record.pb.h"

using namespace linkspan;
using namespace linkspan::test;
using google::protobuf::io::CodedOutputStream;

namespace {

Chain encode(std::shared_ptr<const Record> message, ChainWriter& writer) {
  {
    BufferChainOutputStream stream(writer, message);
    CodedOutputStream coded(&stream);
    coded.EnableAliasing(true);
    CHECK(message->SerializeToCodedStream(&coded));
  }
  return writer.take();
}

bool references(const Chain& chain, const std::string& text) {
  return std::any_of(chain.begin(), chain.end(), [&](const Slice& slice) {
    return static_cast<const void*>(slice.data()) == text.data() && slice.size() == text.size();
  });
}

}  // namespace

TEST_CASE("windows of one block rejoin as one slice") {
  ChainWriter writer(heap_allocator(), [] {
    ChainWriterOptions options;
    options.block_bytes = 64 * 1024;
    return options;
  }());
  Record block;
  for (int i = 0; i < 400; ++i) block.add_tags(std::string(100, static_cast<char>('a' + i % 26)));
  BufferChainOutputStream stream(writer);
  REQUIRE(block.SerializeToZeroCopyStream(&stream));
  CHECK(stream.ByteCount() == static_cast<std::int64_t>(block.ByteSizeLong()));
  stream.sync();
  const Chain chain = writer.take();
  CHECK(chain.slice_count() == 1);
  CHECK(chain == block.SerializeAsString());
}

TEST_CASE("an output stream hands out windows of the threshold, and takes back what was not written") {
  ChainWriter writer(heap_allocator());
  writer.write("before");
  BufferChainOutputStream stream(writer);
  void* data = nullptr;
  int size = 0;
  REQUIRE(stream.Next(&data, &size));
  CHECK(size == static_cast<int>(kReferenceThreshold));
  std::fill_n(static_cast<char*>(data), size, 'x');
  CHECK(stream.ByteCount() == size);
  stream.BackUp(size - 3);
  CHECK(stream.ByteCount() == 3);
  REQUIRE(stream.Next(&data, &size));
  *static_cast<char*>(data) = 'y';
  stream.BackUp(size - 1);
  stream.BackUp(1);
  *static_cast<char*>(data) = 'z';
  REQUIRE(stream.Next(&data, &size));
  *static_cast<char*>(data) = 'z';
  stream.BackUp(size - 1);
  stream.sync();
  CHECK(writer.take() == "beforexxxz");
}

TEST_CASE("a string of a window's size is referenced at every offset, in singular, nested and oneof fields") {
  for (std::size_t offset = 0; offset <= kReferenceThreshold + 8; ++offset) {
    auto block = std::make_shared<Record>();
    block->set_name(std::string(offset, 'n'));
    block->mutable_meta()->set_checksum(std::string(kReferenceThreshold, 'c'));
    block->add_history()->set_name(std::string(kReferenceThreshold + 1, 'h'));
    block->mutable_origin()->set_name(std::string(kReferenceThreshold, 'o'));
    block->set_data(std::string(kReferenceThreshold, 'd'));
    ChainWriter writer(heap_allocator());
    const CopyScope scope;
    const Chain chain = encode(block, writer);
    // A name that happened to be offered by reference but was small is the only copy.
    CHECK(scope.copied().total() == scope.copied()[CopyPlace::below_threshold]);
    CHECK(scope.copied().total() <= offset);
    CHECK(references(chain, block->meta().checksum()));
    CHECK(references(chain, block->history(0).name()));
    CHECK(references(chain, block->origin().name()));
    CHECK(references(chain, block->data()));
    CHECK(chain == block->SerializeAsString());
  }
}

TEST_CASE("a small string that protobuf offers by reference is copied and counted") {
  auto owner = std::make_shared<const std::string>(kReferenceThreshold - 1, 's');
  ChainWriter writer(heap_allocator());
  BufferChainOutputStream stream(writer, owner);
  const CopyScope scope;
  CHECK(stream.WriteAliasedRaw(owner->data(), static_cast<int>(owner->size())));
  CHECK(scope.copied()[CopyPlace::below_threshold] == kReferenceThreshold - 1);
  CHECK(scope.copied().total() == kReferenceThreshold - 1);
  CHECK(owner.use_count() == 2);
  CHECK(writer.take() == *owner);
}

TEST_CASE("the owner is released once, with the last slice") {
  int released = 0;
  Chain chain;
  {
    std::shared_ptr<const Record> block(
        [] {
          auto* message = new Record;
          message->set_url(std::string(3000, 'u'));
          message->set_data(std::string(3000, 'd'));
          return message;
        }(),
        [&released](const Record* message) {
          ++released;
          delete message;
        });
    ChainWriter writer(heap_allocator());
    chain = encode(std::move(block), writer);
  }
  Chain part = chain.share(10, 5);
  chain.clear();
  CHECK(released == 0);
  CHECK(part == "uuuuu");
  part.clear();
  CHECK(released == 1);
}

TEST_CASE("without an owner nothing is referenced") {
  Record block;
  block.set_data(std::string(100'000, 'd'));
  ChainWriter writer(heap_allocator());
  {
    BufferChainOutputStream stream(writer);
    CHECK_FALSE(stream.AllowsAliasing());
    CodedOutputStream coded(&stream);
    coded.EnableAliasing(true);
    CHECK(block.SerializeToCodedStream(&coded));
  }
  const Chain chain = writer.take();
  CHECK_FALSE(references(chain, block.data()));
  CHECK(chain == block.SerializeAsString());
}

TEST_CASE("a refused block makes Next return false, and serialising fails") {
  Record block;
  for (int i = 0; i < 100; ++i) block.add_tags(std::string(100, 't'));
  for (std::size_t allowed = 0; allowed < 3; ++allowed) {
    RefusingAllocator allocator(allowed);
    ChainWriter writer(allocator);
    BufferChainOutputStream stream(writer);
    CHECK_FALSE(block.SerializeToZeroCopyStream(&stream));
    CHECK(writer.error() == errc::pool_exhausted);
    void* data = nullptr;
    int size = 0;
    CHECK_FALSE(stream.Next(&data, &size));
  }
}

TEST_CASE("a message is read from a chain that is cut anywhere") {
  Random rng(1);
  for (int round = 0; round < 200; ++round) {
    Record block;
    fill(block, rng, 2);
    const std::string bytes = block.SerializeAsString();
    const Chain chain = cut_randomly(rng, bytes, 1 + below(rng, 500));
    BufferChainInputStream stream(chain);
    Record read;
    const CopyScope scope;
    REQUIRE(read.ParseFromZeroCopyStream(&stream));
    CHECK(scope.copied().total() == 0);
    CHECK(equal(read, block));
    CHECK(stream.ByteCount() == static_cast<std::int64_t>(bytes.size()));
  }
}

TEST_CASE("an input stream backs up and skips across slices") {
  const Chain chain = cut_at("abcdefgh", {3, 4});
  BufferChainInputStream stream(chain);
  const void* data = nullptr;
  int size = 0;
  REQUIRE(stream.Next(&data, &size));
  CHECK(size == 3);
  stream.BackUp(2);
  CHECK(stream.ByteCount() == 1);
  CHECK(stream.Skip(4));
  CHECK(stream.ByteCount() == 5);
  REQUIRE(stream.Next(&data, &size));
  CHECK(std::string_view(static_cast<const char*>(data), static_cast<std::size_t>(size)) == "fgh");
  stream.BackUp(1);
  CHECK_FALSE(stream.Skip(2));
  CHECK(stream.ByteCount() == 8);
  CHECK_FALSE(stream.Next(&data, &size));
  CHECK(stream.Skip(0));
}
