// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A doubly linked list whose links live in the elements: no allocation, O(1) removal from anywhere.
// An element leaves its list by itself when it is destroyed. The list owns nothing.
// Not for: elements that have to be in two lists of the same tag at once.
// Cost: two pointers an element.
// Threads: none; a list belongs to one thread.
#pragma once

#include <cstddef>

#include "linkspan/base/assert.hpp"

namespace linkspan {

/// Derive from this to be an element; `Tag` tells apart several lists that one type can be in.
template <class Tag = void>
class ListNode {
 public:
  ListNode() noexcept = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { unlink(); }

  [[nodiscard]] bool linked() const noexcept { return next_ != nullptr; }

  void unlink() noexcept {
    if (next_ == nullptr) return;
    next_->previous_ = previous_;
    previous_->next_ = next_;
    next_ = previous_ = nullptr;
  }

 private:
  template <class, class>
  friend class IntrusiveList;

  ListNode* next_ = nullptr;
  ListNode* previous_ = nullptr;
};

template <class T, class Tag = void>
class IntrusiveList {
  using Node = ListNode<Tag>;

 public:
  IntrusiveList() noexcept { head_.next_ = head_.previous_ = &head_; }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;
  ~IntrusiveList() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return head_.next_ == &head_; }
  [[nodiscard]] bool has_one() const noexcept { return !empty() && head_.next_ == head_.previous_; }

  void push_back(T& element) noexcept { insert_before(&head_, &element); }
  void push_front(T& element) noexcept { insert_before(head_.next_, &element); }

  [[nodiscard]] T& front() noexcept {
    LINKSPAN_ASSERT(!empty(), "front() of an empty list");
    return *static_cast<T*>(head_.next_);
  }

  T& pop_front() noexcept {
    T& element = front();
    static_cast<Node&>(element).unlink();
    return element;
  }

  /// The element after `element`, or nullptr at the end.
  [[nodiscard]] T* next(T& element) noexcept {
    Node* node = static_cast<Node&>(element).next_;
    return node == &head_ ? nullptr : static_cast<T*>(node);
  }
  [[nodiscard]] T* first() noexcept { return empty() ? nullptr : &front(); }

  /// Moves all elements of `other` to the end of this list, in order.
  void splice_back(IntrusiveList& other) noexcept {
    if (other.empty()) return;
    Node* first = other.head_.next_;
    Node* last = other.head_.previous_;
    other.head_.next_ = other.head_.previous_ = &other.head_;
    first->previous_ = head_.previous_;
    head_.previous_->next_ = first;
    last->next_ = &head_;
    head_.previous_ = last;
  }

  /// Unlinks all elements; none is destroyed.
  void clear() noexcept {
    while (!empty()) head_.next_->unlink();
  }

 private:
  static void insert_before(Node* position, Node* node) noexcept {
    LINKSPAN_ASSERT(!node->linked(), "an element is in one list at a time");
    node->next_ = position;
    node->previous_ = position->previous_;
    position->previous_->next_ = node;
    position->previous_ = node;
  }

  Node head_;
};

}  // namespace linkspan
