// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/interop/asio_buffers.hpp"

#include <doctest/doctest.h>

#include <asio.hpp>
#include <string>
#include <utility>

#include "linkspan/buffer/copy_ledger.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::chain_of;

static_assert(asio::is_const_buffer_sequence<AsioBuffers>::value);

TEST_CASE("Asio writes a chain of many slices and reads into a block, and nothing is copied by us") {
  asio::io_context context;
  asio::local::stream_protocol::socket left(context);
  asio::local::stream_protocol::socket right(context);
  asio::local::connect_pair(left, right);
  std::string text;
  for (int i = 0; text.size() < 5000; ++i) text += std::to_string(i);
  const Chain chain = chain_of(text, 7);  // more slices than one writev takes
  Block block = heap_allocator().allocate(text.size());

  const CopyScope scope;
  CHECK(asio::buffer_size(asio_buffers(chain)) == text.size());
  std::size_t written = 0;
  std::size_t read = 0;
  asio::async_write(left, asio_buffers(chain),
                    [&written](std::error_code, std::size_t size) { written = size; });
  asio::async_read(right, asio_buffer(block), [&read](std::error_code, std::size_t size) { read = size; });
  context.run();
  CHECK(written == text.size());
  CHECK(read == text.size());
  CHECK(std::move(block).freeze_all(read).view() == text);
  CHECK(scope.copied().total() == 0);
}

TEST_CASE("a sequence can be walked in both directions, and an empty chain is an empty one") {
  const Chain chain = chain_of("abcdef", 2);
  const AsioBuffers buffers = asio_buffers(chain);
  std::string backwards;
  for (auto at = buffers.end(); at != buffers.begin();) {
    --at;
    backwards += std::string(static_cast<const char*>((*at).data()), (*at).size());
  }
  CHECK(backwards == "efcdab");
  const Chain none;
  CHECK(asio::buffer_size(asio_buffers(none)) == 0);
  const Slice slice = Slice::immortal("abc");
  CHECK(asio_buffer(slice).data() == slice.data());
  CHECK(asio_buffer(slice).size() == 3);
}
