// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "out_of_memory/failing_allocations.hpp"

#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kNever = static_cast<std::size_t>(-1);
thread_local std::size_t t_allowed = kNever;
thread_local bool t_failed = false;

void* allocate(std::size_t size) noexcept {
  if (t_allowed != kNever && t_allowed-- == 0) {
    t_allowed = kNever;
    t_failed = true;
    return nullptr;
  }
  return std::malloc(size == 0 ? 1 : size);
}

}  // namespace

namespace linkspan::test {

FailingAllocation::FailingAllocation(std::size_t allowed) noexcept {
  t_failed = false;
  t_allowed = allowed;
}

FailingAllocation::~FailingAllocation() {
  t_allowed = kNever;
}

bool FailingAllocation::failed() const noexcept {
  return t_failed;
}

}  // namespace linkspan::test

void* operator new(std::size_t size) {
  if (void* memory = allocate(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
