// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/buffer/call_stack.hpp"

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>

#ifdef __linux__
#include <unistd.h>
#endif
#if __has_include(<execinfo.h>)
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#define LINKSPAN_HAVE_BACKTRACE 1
#else
#define LINKSPAN_HAVE_BACKTRACE 0
#endif

namespace linkspan::detail {
namespace {

std::uint32_t number_of_this_thread() noexcept {
#ifdef __linux__
  static thread_local const auto number = static_cast<std::uint32_t>(::gettid());  // as gdb shows it
#else
  static std::atomic<std::uint32_t> threads{0};
  static thread_local const std::uint32_t number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
#endif
  return number;
}

#if LINKSPAN_HAVE_BACKTRACE
// A return address belongs to the instruction before it.
std::string frame_to_string(int number, void* return_address) {
  const auto* address = static_cast<const char*>(return_address) - 1;
  std::string text = "    #" + std::to_string(number) + " ";
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) info = {"?", nullptr, nullptr, nullptr};
  if (info.dli_sname != nullptr) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> plain(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
    text += (plain != nullptr ? plain.get() : info.dli_sname) + std::string(" ");
  }
  std::array<char, 32> offset{};
  static_cast<void>(std::snprintf(
      offset.data(), offset.size(), "0x%" PRIxPTR,
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(info.dli_fbase)));
  return text + "(" + info.dli_fname + " " + offset.data() + ")\n";
}
#endif

}  // namespace

[[gnu::noinline]] CallStack CallStack::here() noexcept {
  CallStack stack;
  stack.thread_ = number_of_this_thread();
#if LINKSPAN_HAVE_BACKTRACE
  stack.depth_ = ::backtrace(stack.frames_.data(), static_cast<int>(stack.frames_.size()));
#endif
  return stack;
}

std::string CallStack::to_string() const {
  std::string text = "on thread " + std::to_string(thread_) + "\n";
#if LINKSPAN_HAVE_BACKTRACE
  for (int i = kOwnFrames; i < depth_; ++i) {
    text += frame_to_string(i - kOwnFrames, frames_[static_cast<std::size_t>(i)]);
  }
#endif
  return text;
}

}  // namespace linkspan::detail
