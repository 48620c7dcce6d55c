// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/base/unique_function.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>

using namespace linkspan;

namespace {

// Counts the objects that are alive, moved-from ones included, and the calls of all of them.
struct Counts {
  int alive = 0;
  int calls = 0;
};

template <std::size_t PaddingBytes, bool MovesWithoutThrowing = true>
struct Counted {
  explicit Counted(Counts& counts_in) noexcept : counts(&counts_in) { ++counts->alive; }
  Counted(Counted&& other) noexcept(MovesWithoutThrowing) : counts(other.counts) { ++counts->alive; }
  ~Counted() { --counts->alive; }
  void operator()() { ++counts->calls; }

  Counts* counts;
  std::array<char, PaddingBytes> padding{};
};

using Small = Counted<24>;
using Large = Counted<25>;
using Throwing = Counted<1, false>;
static_assert(sizeof(Small) == 32);
static_assert(!std::is_copy_constructible_v<unique_function<void()>>);
static_assert(std::is_nothrow_move_constructible_v<unique_function<void()>>);
static_assert(!std::is_constructible_v<unique_function<void()>, int>);
static_assert(!std::is_constructible_v<unique_function<int(std::string)>, int (*)(int*)>);

}  // namespace

TEST_CASE_TEMPLATE("a callable is destroyed exactly once, inline and on the heap", Callable, Small, Large,
                   Throwing) {
  Counts counts;
  {
    unique_function<void()> function = Callable(counts);
    CHECK(counts.alive == 1);
    function();

    unique_function<void()> moved = std::move(function);
    CHECK_FALSE(static_cast<bool>(function));
    CHECK(counts.alive == 1);
    moved();
    CHECK(counts.calls == 2);

    unique_function<void()> assigned = Callable(counts);
    CHECK(counts.alive == 2);
    assigned = std::move(moved);
    CHECK(counts.alive == 1);
    CHECK_FALSE(static_cast<bool>(moved));

    auto& same = assigned;
    assigned = std::move(same);
    CHECK(static_cast<bool>(assigned));
    CHECK(counts.alive == 1);
    assigned();
    CHECK(counts.calls == 3);

    assigned.reset();
    CHECK(counts.alive == 0);
    assigned.reset();
    assigned = Callable(counts);
    assigned = nullptr;
    CHECK(counts.alive == 0);
    assigned = Callable(counts);
  }
  CHECK(counts.alive == 0);
}

TEST_CASE("arguments and results pass through, also those that can only be moved") {
  unique_function<std::unique_ptr<int>(std::unique_ptr<int>, int&)> function = [](std::unique_ptr<int> number,
                                                                                  int& seen) {
    seen = *number;
    return number;
  };
  int seen = 0;
  CHECK(*function(std::make_unique<int>(5), seen) == 5);
  CHECK(seen == 5);

  unique_function<void(int)> dropped_result = [total = 0](int amount) mutable { return total += amount; };
  dropped_result(1);
  unique_function<int(int)> pointer = +[](int number) { return number + 1; };
  CHECK(pointer(1) == 2);
}

TEST_CASE("an exception passes through and leaves the function as it was") {
  unique_function<int(bool)> function = [](bool fail) {
    if (fail) throw std::runtime_error("no");
    return 1;
  };
  CHECK_THROWS_AS(function(true), std::runtime_error);
  CHECK(function(false) == 1);
}

TEST_CASE("what a function holds may destroy or replace the function while it goes") {
  unique_function<void()> function;
  struct Replaces {
    explicit Replaces(unique_function<void()>* function_in) noexcept : function(function_in) {}
    Replaces(Replaces&& other) noexcept : function(std::exchange(other.function, nullptr)) {}
    ~Replaces() {
      if (function != nullptr) CHECK_FALSE(static_cast<bool>(*function));
    }
    void operator()() {}
    unique_function<void()>* function;
  };
  function = Replaces(&function);
  function.reset();
  CHECK_FALSE(static_cast<bool>(function));
}
