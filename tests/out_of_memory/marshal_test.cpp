// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <doctest/doctest.h>

#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "archive.pb.h"
#include "linkspan/marshal/protobuf.hpp"
#include "out_of_memory/failing_allocations.hpp"

using namespace linkspan;
using linkspan::test::Archive;
using linkspan::test::fail_each_allocation;

namespace {

Archive archive() {
  Archive made;
  made.set_name(std::string(5000, 'n'));
  for (int i = 0; i < 10; ++i) made.add_lines(std::string(3000, 'l'));
  made.mutable_first()->set_name(std::string(3000, 'f'));
  (*made.mutable_notes())[3] = "short";
  for (int i = 0; i < 300; ++i) made.add_lines("small lines, of which there are many");
  return made;
}

}  // namespace

TEST_CASE("a message that there is no memory for is not written, and what it references is let go") {
  const auto archives = ProtobufMarshaller<Archive>::create().value_or_throw();
  const std::string payload(5000, 'p');
  for (const bool with_payloads : {false, true}) {
    int lent = 0;
    int released = 0;
    std::weak_ptr<const Archive> alive;
    const std::size_t allocations = [&] {
      std::shared_ptr<const Archive> message;
      Payloads payloads;
      Status status = std::monostate();
      const auto prepare = [&] {
        Archive made = archive();
        payloads = Payloads();
        for (int i = 0; i < 10 && with_payloads; ++i) {
          made.add_pieces(
              payloads.add(Chain(Slice::borrow(std::as_bytes(std::span(payload)), [&] { ++released; }))));
          ++lent;
        }
        message = std::make_shared<const Archive>(std::move(made));
        alive = message;
        status = Error(errc::unavailable, "");
      };
      prepare();
      return fail_each_allocation(
          [&] {
            ChainWriter writer(heap_allocator());
            status = archives.write(std::move(message), std::move(payloads), writer);
          },
          [&](bool failed) {
            CHECK(status.ok() == !failed);
            message.reset();
            payloads.clear();
            CHECK(alive.expired());
            CHECK(released == lent);
            if (failed) prepare();
          });
    }();
    CHECK(allocations > 10);
  }
}

TEST_CASE("a message that there is no memory for is not read, and its frame is let go") {
  const auto archives = ProtobufMarshaller<Archive>::create().value_or_throw();
  Archive made = archive();
  made.clear_notes();  // protobuf 3.21 does not survive that it cannot grow a map
  made.mutable_first()->set_data(std::string(4000, 'd'));
  for (int i = 0; i < 10; ++i) made.add_pieces(std::string(4000, 'p'));
  const std::string bytes = made.SerializeAsString();
  int released = 0;
  int frames = 0;
  bool read = false;
  Chain frame;
  const auto prepare = [&] {
    read = false;
    frame = Chain(Slice::borrow(std::as_bytes(std::span(bytes)), [&] { ++released; }));
    ++frames;
  };
  prepare();
  const std::size_t allocations = fail_each_allocation([&] { read = archives.read(std::move(frame)).ok(); },
                                                       [&](bool failed) {
                                                         CHECK(read == !failed);
                                                         frame.clear();
                                                         CHECK(released == frames);
                                                         if (failed) prepare();
                                                       });
  CHECK(allocations > 10);
}
