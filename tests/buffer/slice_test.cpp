// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/slice.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "support/log_capture.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::LogCapture;
using linkspan::test::Releases;

namespace {

// Writing to what a slice shows does not compile.
static_assert(sizeof(Slice) == (kBufferDebug ? 40 : 24));
static_assert(std::is_same_v<decltype(std::declval<Slice&>().data()), const std::byte*>);
static_assert(std::is_same_v<decltype(std::declval<Slice&>().bytes()), std::span<const std::byte>>);
static_assert(std::is_same_v<decltype(std::declval<Slice&>().view()), std::string_view>);
template <class T>
concept Writable = requires(T& memory) {
  memory.writable();
};
static_assert(Writable<Block> && !Writable<Slice>);
template <class T>
concept Immortal = requires(T&& memory) {
  Slice::immortal(std::forward<T>(memory));
};
static_assert(Immortal<std::string&> && Immortal<const char (&)[4]> && Immortal<std::span<const std::byte>>);
static_assert(!Immortal<std::string> && !Immortal<std::vector<std::byte>>);
static_assert(std::is_nothrow_move_constructible_v<Slice> && std::is_nothrow_copy_constructible_v<Slice>);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Alive when main() begins and destroyed after every function-local static that main() makes.
struct CopiesAtExit {
  ~CopiesAtExit() {
    if (Slice::copy("late").view() != "late") std::abort();
  }
} g_copies_at_exit;

}  // namespace

TEST_CASE("an empty slice has no bytes and no memory") {
  const Slice empty;
  CHECK(empty.empty());
  CHECK(empty.view().empty());
  CHECK(empty.pinned_size() == 0);
  CHECK(Slice::copy("").empty());
  CHECK(empty == Slice::copy(""));
}

TEST_CASE("a copy has memory of its own") {
  std::string text = "some bytes";
  const Slice slice = Slice::copy(text);
  text[0] = 'S';
  CHECK(slice.view() == "some bytes");
  CHECK(slice.pinned_size() == slice.size());
}

TEST_CASE("adopting a string takes its memory over") {
  std::string text(1000, 'x');
  text.reserve(1500);
  const void* memory = text.data();
  const std::size_t capacity = text.capacity();
  const Slice slice = Slice::adopt(std::move(text));
  CHECK(slice.data() == memory);
  CHECK(slice.size() == 1000);
  CHECK(slice.pinned_size() == capacity);
}

TEST_CASE("adopting a short string keeps its bytes where the slice finds them") {
  const Slice slice = Slice::adopt(std::string("short"));
  const Slice second = slice;
  CHECK(second.view() == "short");
  CHECK(Slice::adopt(std::string()).empty());
}

TEST_CASE("adopting a vector takes its memory over") {
  std::vector<std::byte> bytes(1000, std::byte{7});
  bytes.reserve(3000);
  const std::byte* memory = bytes.data();
  const Slice slice = Slice::adopt(std::move(bytes));
  CHECK(slice.data() == memory);
  CHECK(slice.size() == 1000);
  CHECK(slice.pinned_size() == 3000);
}

TEST_CASE("adopting a shared_ptr keeps its owner until the last slice is gone") {
  const auto owner = std::make_shared<const std::string>("shared text");
  Slice slice = Slice::adopt(owner, bytes_of(*owner));
  Slice part = slice.slice(7, 4);
  CHECK(part.view() == "text");
  CHECK(owner.use_count() == 2);
  slice = Slice();
  CHECK(owner.use_count() == 2);
  part = Slice();
  CHECK(owner.use_count() == 1);
}

TEST_CASE("adopting a unique_ptr to an array takes its memory over") {
  auto memory = std::make_unique<std::byte[]>(100);
  const std::byte* where = memory.get();
  const CopyScope scope;
  Slice slice = Slice::adopt(std::move(memory), 100);
  CHECK(slice.data() == where);
  CHECK(slice.size() == 100);
  CHECK(slice.pinned_size() == 100);
  Block block = Block::make_unique(std::move(slice));
  CHECK(block.data() == where);
  CHECK(scope.copied().total() == 0);
  CHECK(Slice::adopt(std::unique_ptr<std::byte[]>(), 0).empty());
}

TEST_CASE("adopting any unique_ptr keeps what it owns, with its deleter, until the last slice is gone") {
  int deleted = 0;
  const auto deleter = [&deleted](const std::string* text) {
    ++deleted;
    delete text;
  };
  std::unique_ptr<const std::string, decltype(deleter)> owner(new std::string("text of an object"), deleter);
  const std::span<const std::byte> bytes = bytes_of(*owner);
  Slice slice = Slice::adopt(std::move(owner), bytes);
  Slice part = slice.slice(8, 9);
  slice = Slice();
  CHECK(part.view() == "an object");
  CHECK(deleted == 0);
  part = Slice();
  CHECK(deleted == 1);
}

TEST_CASE("a completion that throws is logged, and the thread that drops the slice goes on") {
  const LogCapture log;
  {
    const Slice refused = Slice::borrow(bytes_of("bytes"), [] { throw std::runtime_error("no luck"); });
    const Slice odd = Slice::adopt(bytes_of("bytes"), [] { throw 1; });
  }
  CHECK(log.contains("the completion of adopted or borrowed memory threw: no luck"));
  CHECK(log.contains("threw: something that is not a std::exception"));
}

TEST_CASE("a completion may return something, and may be one that is called once only") {
  struct Once {
    int& calls;
    Status operator()() && {
      ++calls;
      return std::monostate();
    }
  };
  int calls = 0;
  static_cast<void>(Slice::borrow(bytes_of("text"), Once{calls}));
  static_cast<void>(Slice::adopt(bytes_of("text"), [&calls]() -> Status { return Once{calls}(); }));
  CHECK(calls == 2);
}

TEST_CASE("bytes are put in front only where nobody else can see, and where there is room") {
  Block block = heap_allocator().allocate(20);
  block.drop_front(8);
  CHECK(block.headroom() == 8);
  for (std::byte& byte : block.writable()) byte = std::byte{'.'};
  Slice slice = std::move(block).freeze_all(3);
  CHECK(slice.headroom() == 8);
  CHECK_FALSE(slice.prepend_in_place(bytes_of("nine byte")));
  {
    const Slice other = slice;
    CHECK(slice.headroom() == 0);
    CHECK_FALSE(slice.prepend_in_place(bytes_of("a")));
  }
  const CopyScope scope;
  CHECK(slice.prepend_in_place(bytes_of("header")));
  CHECK(slice.view() == "header...");
  CHECK(slice.headroom() == 2);
  CHECK(scope.copied()[CopyPlace::below_threshold] == 6);

  Slice immortal = Slice::immortal("bytes").slice(2, 3);
  CHECK_FALSE(immortal.prepend_in_place(bytes_of("a")));
  const std::string memory = "memory of somebody else";
  Slice borrowed = Slice::borrow(bytes_of(memory), [] {}).slice(5, 2);
  CHECK_FALSE(borrowed.prepend_in_place(bytes_of("a")));
  CHECK(memory == "memory of somebody else");
}

TEST_CASE("adopted memory is freed exactly once, after the last slice") {
  int freed = 0;
  auto* memory = new std::string("memory");
  Slice slice = Slice::adopt(bytes_of(*memory), [&freed, memory] {
    ++freed;
    delete memory;
  });
  Slice copy = slice;
  Slice moved = std::move(slice);
  CHECK(slice.empty());
  copy = Slice();
  CHECK(freed == 0);
  moved = Slice();
  CHECK(freed == 1);
}

TEST_CASE("a borrow completes exactly once, and only when no slice is left") {
  int completed = 0;
  const std::string text = "borrowed bytes";
  {
    Slice whole = Slice::borrow(bytes_of(text), [&completed] { ++completed; });
    CHECK(whole.data() == bytes_of(text).data());
    Slice tail = whole.slice(9, 5);
    Slice front = whole.split_front(8);
    CHECK(front.view() == "borrowed");
    whole.drop_front(whole.size());
    front = Slice();
    CHECK(completed == 0);
    CHECK(tail.view() == "bytes");
    whole = Slice();
    CHECK(completed == 0);
  }
  CHECK(completed == 1);
}

TEST_CASE("an empty borrow completes too") {
  int completed = 0;
  static_cast<void>(Slice::borrow({}, [&completed] { ++completed; }));
  CHECK(completed == 1);
}

TEST_CASE("a completion may drop and make further slices") {
  std::vector<int> order;
  Slice inner = Slice::borrow(bytes_of("a"), [&order] { order.push_back(2); });
  Slice outer = Slice::borrow(bytes_of("b"), [&order, inner = std::move(inner)]() mutable {
    order.push_back(1);
    inner = Slice::copy("c");
  });
  outer = Slice();
  CHECK(order == std::vector{1, 2});
}

TEST_CASE("immortal slices have no owner") {
  const Slice slice = Slice::immortal("literal");
  CHECK(slice.view() == "literal");
  CHECK(slice.pinned_size() == 0);
  CHECK(slice.slice(3, 2).view() == "er");
}

TEST_CASE("parts share memory; an empty part pins none") {
  Releases releases;
  Slice slice = releases.slice("0123456789");
  const Slice none = slice.slice(5, 0);
  CHECK(slice.slice(10, 0).empty());
  Slice all = slice.split_front(10);
  CHECK(slice.empty());
  CHECK(all.view() == "0123456789");
  CHECK(all.split_front(0).empty());
  CHECK(all.split_front(3).view() == "012");
  CHECK(all.view() == "3456789");
  all.drop_back(2);
  all.drop_front(1);
  CHECK(all.view() == "4567");
  CHECK(all.pinned_size() == 10);
  all = Slice();
  CHECK(releases.alive() == 0);
}

TEST_CASE("neighbours in the same memory join; others do not") {
  const Slice whole = Slice::copy("abcdef");
  Slice front = whole.slice(0, 2);
  CHECK_FALSE(front.join(whole.slice(3, 3)));
  CHECK_FALSE(front.join(whole.slice(0, 2)));
  CHECK(front.join(whole.slice(2, 1)));
  CHECK(front.view() == "abc");
  CHECK(front.join(whole.slice(3, 3)));
  CHECK(front == whole);
  CHECK_FALSE(front.join(Slice::copy("g")));

  const Slice literal = Slice::immortal("literal");
  Slice start = literal.slice(0, 3);
  CHECK_FALSE(start.join(literal.slice(3, 4)));  // nobody knows that they are one object
  CHECK_FALSE(Slice().join(Slice()));
}

TEST_CASE("a slice assigned to itself stays what it was") {
  Releases releases;
  Slice slice = releases.slice("self");
  Slice& same = slice;
  slice = same;
  CHECK(slice.view() == "self");
  slice = std::move(same);
  CHECK(slice.view() == "self");
  slice = Slice();
  CHECK(releases.alive() == 0);
}
