// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// unique_function<R(Args...)>: a move-only callable. C++20 has no std::move_only_function.
// Not for: callables that are called through a template parameter anyway.
// Cost: 40 bytes; callables of up to 32 bytes that move without throwing are held inline, larger ones are
// allocated. A call is one indirect call.
// Threads: a value; as safe as what it holds.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "linkspan/base/assert.hpp"

namespace linkspan {

template <class Signature>
class unique_function;

template <class R, class... Args>
class unique_function<R(Args...)> {
 public:
  unique_function() noexcept = default;
  unique_function(std::nullptr_t) noexcept {}

  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, unique_function> &&
           std::is_invocable_r_v<R, std::decay_t<F>&, Args...>) unique_function(F&& callable) {
    using Callable = std::decay_t<F>;
    if constexpr (fits_inline<Callable>) {
      ::new (static_cast<void*>(storage_)) Callable(std::forward<F>(callable));
      operations_ = &kInlineOperations<Callable>;
    } else {
      ::new (static_cast<void*>(storage_)) Callable*(new Callable(std::forward<F>(callable)));
      operations_ = &kHeapOperations<Callable>;
    }
  }

  unique_function(unique_function&& other) noexcept { take(other); }
  unique_function& operator=(unique_function&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  unique_function(const unique_function&) = delete;
  unique_function& operator=(const unique_function&) = delete;
  ~unique_function() { reset(); }

  explicit operator bool() const noexcept { return operations_ != nullptr; }

  R operator()(Args... args) {
    LINKSPAN_ASSERT(operations_ != nullptr, "call of an empty unique_function");
    return operations_->call(storage_, std::forward<Args>(args)...);
  }

  /// Destroys the callable and leaves the function empty.
  void reset() noexcept {
    if (operations_ != nullptr) std::exchange(operations_, nullptr)->destroy(storage_);
  }

 private:
  struct Operations {
    R (*call)(void*, Args&&...);
    void (*move)(void* from, void* to) noexcept;  // and destroys *from
    void (*destroy)(void*) noexcept;
  };

  static constexpr std::size_t kInlineBytes = 32;

  template <class F>
  static constexpr bool fits_inline = sizeof(F) <= kInlineBytes &&
                                      alignof(F) <= alignof(void*) && std::is_nothrow_move_constructible_v<F>;

  template <class F>
  static F& inline_callable(void* storage) noexcept {
    return *std::launder(static_cast<F*>(storage));
  }
  template <class F>
  static F*& heap_callable(void* storage) noexcept {
    return *std::launder(static_cast<F**>(storage));
  }

  template <class F>
  static constexpr Operations kInlineOperations{
      [](void* storage, Args&&... args) -> R {
        return static_cast<R>(inline_callable<F>(storage)(std::forward<Args>(args)...));
      },
      [](void* from, void* to) noexcept {
        ::new (to) F(std::move(inline_callable<F>(from)));
        inline_callable<F>(from).~F();
      },
      [](void* storage) noexcept { inline_callable<F>(storage).~F(); }};

  template <class F>
  static constexpr Operations kHeapOperations{
      [](void* storage, Args&&... args) -> R {
        return static_cast<R>((*heap_callable<F>(storage))(std::forward<Args>(args)...));
      },
      [](void* from, void* to) noexcept { ::new (to) F*(heap_callable<F>(from)); },
      [](void* storage) noexcept { delete heap_callable<F>(storage); }};

  void take(unique_function& other) noexcept {
    if (other.operations_ == nullptr) return;
    other.operations_->move(other.storage_, storage_);
    operations_ = std::exchange(other.operations_, nullptr);
  }

  alignas(void*) std::byte storage_[kInlineBytes];
  const Operations* operations_ = nullptr;
};

static_assert(sizeof(unique_function<void()>) == 40);

}  // namespace linkspan
