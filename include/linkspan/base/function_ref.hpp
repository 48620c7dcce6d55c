// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// function_ref<R(Args...)>: a callable of the caller's, for the time of a call.
// Not for: what is kept after the call; that is a unique_function.
// Cost: two pointers, no allocation. A call is one indirect call.
// Threads: a value; as safe as what it refers to.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace linkspan {

template <class Signature>
class function_ref;

template <class R, class... Args>
class function_ref<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cv_t<F>, function_ref> && std::is_invocable_r_v<R, F&, Args...>)
      function_ref(F& callable)
  noexcept
      : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* to_call, Args... args) -> R {
          return static_cast<R>((*static_cast<F*>(to_call))(std::forward<Args>(args)...));
        }) {}

  R operator()(Args... args) const { return call_(callable_, std::forward<Args>(args)...); }

 private:
  void* callable_;
  R (*call_)(void*, Args...);
};

}  // namespace linkspan
