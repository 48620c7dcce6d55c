// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ChannelAttributes: state of a channel that its handlers share, found by typed keys. A key is a constant of
// the program that names one kind of state; each channel has at most one of a kind.
// Not for: state of one handler (a member), or of several channels.
// Cost: 8 bytes a channel until the first one is stored; then 16 bytes for each key made before, and one
// allocation for each stored. Finding one is an index and a comparison, no hash and no name.
// Threads: keys are immutable; attributes are used on the channel's loop.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "linkspan/base/export.hpp"

namespace linkspan {

class ChannelAttributes;

namespace detail {

class LINKSPAN_API ChannelKeyBase {
 public:
  ChannelKeyBase(const ChannelKeyBase&) = delete;
  ChannelKeyBase& operator=(const ChannelKeyBase&) = delete;

 protected:
  ChannelKeyBase() noexcept;
  ~ChannelKeyBase() = default;

 private:
  friend class linkspan::ChannelAttributes;
  std::size_t index_;
};

}  // namespace detail

/// Names state of type T. Make it a constant at namespace scope: `const ChannelKey<Session> kSession;`. At
/// most ChannelAttributes::kKeysMost in a program; one more asserts.
template <class T>
class ChannelKey final : public detail::ChannelKeyBase {
 public:
  ChannelKey() noexcept = default;
};

class LINKSPAN_API ChannelAttributes {
 public:
  static constexpr std::size_t kKeysMost = 1024;

  ChannelAttributes() noexcept = default;
  ~ChannelAttributes();
  ChannelAttributes(const ChannelAttributes&) = delete;
  ChannelAttributes& operator=(const ChannelAttributes&) = delete;

  /// nullptr when none is stored.
  template <class T>
  [[nodiscard]] T* find(const ChannelKey<T>& key) const noexcept {
    return static_cast<T*>(object(key));
  }
  /// What is stored; made by T's default constructor at first.
  template <class T>
  [[nodiscard]] T& get(const ChannelKey<T>& key) {
    if (T* found = find(key)) return *found;
    return emplace(key);
  }
  /// Makes it, in the place of what was stored.
  template <class T, class... Args>
  T& emplace(const ChannelKey<T>& key, Args&&... args) {
    auto made = std::make_unique<T>(std::forward<Args>(args)...);
    store(key, made.get(), [](void* old) noexcept { delete static_cast<T*>(old); });
    return *made.release();
  }
  /// Destroys it, if it is stored.
  template <class T>
  void erase(const ChannelKey<T>& key) noexcept {
    if (find(key) != nullptr) drop(key);
  }

 private:
  struct Slot {
    void* object = nullptr;
    void (*destroy)(void*) noexcept = nullptr;
  };

  [[nodiscard]] void* object(const detail::ChannelKeyBase& key) const noexcept {
    return slots_ != nullptr && key.index_ < slots_->size() ? (*slots_)[key.index_].object : nullptr;
  }
  void store(const detail::ChannelKeyBase& key, void* object, void (*destroy)(void*) noexcept);
  void drop(const detail::ChannelKeyBase& key) noexcept;

  std::unique_ptr<std::vector<Slot>> slots_;
};

}  // namespace linkspan
