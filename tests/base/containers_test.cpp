// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <doctest/doctest.h>

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "linkspan/base/counter.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/base/ring_queue.hpp"

using namespace linkspan;

namespace {

struct Red;
struct Element : ListNode<>, ListNode<Red> {
  explicit Element(int number_in) : number(number_in) {}
  int number;
};
using List = IntrusiveList<Element>;
using RedList = IntrusiveList<Element, Red>;

std::vector<int> numbers(List& list) {
  std::vector<int> found;
  for (Element* element = list.first(); element != nullptr; element = list.next(*element)) {
    found.push_back(element->number);
  }
  return found;
}

}  // namespace

TEST_CASE("a list keeps the order in which elements were pushed to its ends") {
  Element one(1), two(2), three(3);
  List list;
  CHECK(list.empty());
  CHECK(list.first() == nullptr);
  list.push_back(two);
  list.push_back(three);
  list.push_front(one);
  CHECK(numbers(list) == std::vector{1, 2, 3});
  CHECK(&list.pop_front() == &one);
  CHECK_FALSE(static_cast<ListNode<>&>(one).linked());
  CHECK(numbers(list) == std::vector{2, 3});
}

TEST_CASE("a list knows whether it has just one element") {
  Element one(1), two(2);
  List list;
  CHECK_FALSE(list.has_one());
  list.push_back(one);
  CHECK(list.has_one());
  list.push_back(two);
  CHECK_FALSE(list.has_one());
  static_cast<ListNode<>&>(one).unlink();
  CHECK(list.has_one());
}

TEST_CASE("an element leaves its list when it is unlinked or destroyed, wherever it stands") {
  List list;
  Element first(1);
  auto middle = std::make_unique<Element>(2);
  Element last(3);
  list.push_back(first);
  list.push_back(*middle);
  list.push_back(last);
  middle.reset();
  CHECK(numbers(list) == std::vector{1, 3});
  static_cast<ListNode<>&>(first).unlink();
  static_cast<ListNode<>&>(first).unlink();
  CHECK(numbers(list) == std::vector{3});
  static_cast<ListNode<>&>(last).unlink();
  CHECK(list.empty());
  list.push_back(first);
  CHECK(numbers(list) == std::vector{1});
}

TEST_CASE("an element can be in one list of each tag") {
  Element element(1);
  List list;
  RedList red;
  list.push_back(element);
  red.push_back(element);
  list.pop_front();
  CHECK(red.first() == &element);
}

TEST_CASE("splicing moves all elements to the end, in order") {
  Element one(1), two(2), three(3);
  List list;
  List other;
  list.splice_back(other);
  CHECK(list.empty());
  other.push_back(one);
  other.push_back(two);
  list.splice_back(other);
  CHECK(other.empty());
  other.push_back(three);
  list.splice_back(other);
  CHECK(numbers(list) == std::vector{1, 2, 3});
}

TEST_CASE("a list that is cleared or destroyed unlinks its elements") {
  Element one(1), two(2);
  {
    List list;
    list.push_back(one);
    list.push_back(two);
    list.clear();
    CHECK(list.empty());
    list.push_back(one);
  }
  CHECK_FALSE(static_cast<ListNode<>&>(one).linked());
  CHECK_FALSE(static_cast<ListNode<>&>(two).linked());
}

TEST_CASE("a ring queue is first in, first out while it wraps around and grows") {
  std::mt19937 generator(1);
  RingQueue<std::unique_ptr<int>> queue;
  std::deque<int> model;
  int next = 0;
  for (int step = 0; step < 20'000; ++step) {
    const bool growing = step / 1000 % 2 == 0;
    if (model.empty() || generator() % 100 < (growing ? 60u : 40u)) {
      queue.push_back(std::make_unique<int>(next));
      model.push_back(next++);
    } else {
      REQUIRE(*queue.front() == model.front());
      REQUIRE(*queue.pop_front() == model.front());
      model.pop_front();
    }
    REQUIRE(queue.size() == model.size());
    REQUIRE(queue.empty() == model.empty());
  }
}

TEST_CASE("a ring queue lets go of an item when it is popped") {
  auto item = std::make_shared<int>(1);
  RingQueue<std::shared_ptr<int>> queue;
  queue.push_back(item);
  queue.push_back(item);
  static_cast<void>(queue.pop_front());
  CHECK(item.use_count() == 2);
}

TEST_CASE(
    "a ring queue that is destroyed or replaced lets go of all its items, also of those that wrap around") {
  auto item = std::make_shared<int>(1);
  RingQueue<std::shared_ptr<int>> queue;
  for (int i = 0; i < 3; ++i) queue.push_back(item);
  static_cast<void>(queue.pop_front());
  for (int i = 0; i < 2; ++i) queue.emplace_back(item);
  CHECK(item.use_count() == 5);
  queue = RingQueue<std::shared_ptr<int>>();
  CHECK(item.use_count() == 1);
  {
    RingQueue<std::shared_ptr<int>> other;
    for (int i = 0; i < 9; ++i) other.push_back(item);
  }
  CHECK(item.use_count() == 1);
}

TEST_CASE("a moved ring queue leaves an empty one that works") {
  RingQueue<int> queue;
  for (int i = 0; i < 9; ++i) queue.push_back(i);
  RingQueue<int> moved = std::move(queue);
  CHECK(queue.empty());
  CHECK(moved.size() == 9);
  queue.push_back(100);
  CHECK(queue.pop_front() == 100);
  queue = std::move(moved);
  CHECK(queue.size() == 9);
  CHECK(queue.pop_front() == 0);
  CHECK(moved.empty());
}

TEST_CASE("a counter counts up, down and to a maximum") {
  Counter counter;
  counter.add(5);
  counter.subtract(2);
  CHECK(counter.get() == 3);
  counter.raise_to(2);
  CHECK(counter.get() == 3);
  counter.raise_to(9);
  CHECK(counter.get() == 9);
}
