// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "out_of_memory/failing_allocations.hpp"

#include <cerrno>
#include <cstdlib>
#include <new>

#if LINKSPAN_OWN_MALLOC
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* __libc_calloc(std::size_t count, std::size_t size);
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t size);
#endif

namespace {

constexpr std::size_t kNever = static_cast<std::size_t>(-1);
thread_local std::size_t t_allowed = kNever;
thread_local bool t_failed = false;
thread_local std::size_t t_mallocs_allowed = kNever;
thread_local std::size_t t_mallocs = 0;
thread_local bool t_malloc_failed = false;

void* plain_malloc(std::size_t size) noexcept {
#if LINKSPAN_OWN_MALLOC
  return __libc_malloc(size);
#else
  return std::malloc(size);
#endif
}

#if LINKSPAN_OWN_MALLOC
bool malloc_fails() noexcept {
  ++t_mallocs;
  if (t_mallocs_allowed == kNever || t_mallocs_allowed-- != 0) return false;
  t_mallocs_allowed = kNever;
  t_malloc_failed = true;
  errno = ENOMEM;
  return true;
}
#endif

bool new_fails() noexcept {
  if (t_allowed == kNever || t_allowed-- != 0) return false;
  t_allowed = kNever;
  t_failed = true;
  return true;
}

void* allocate(std::size_t size) noexcept {
  return new_fails() ? nullptr : plain_malloc(size == 0 ? 1 : size);
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

FailingMalloc::FailingMalloc(std::size_t allowed) noexcept {
  t_mallocs = 0;
  t_malloc_failed = false;
  t_mallocs_allowed = allowed;
}

FailingMalloc::~FailingMalloc() {
  t_mallocs_allowed = kNever;
}

bool FailingMalloc::failed() const noexcept {
  return t_malloc_failed;
}

std::size_t FailingMalloc::calls() const noexcept {
  return t_mallocs;
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

// The libraries that the program uses find these in front of the system's.
#if LINKSPAN_OWN_MALLOC
extern "C" void* malloc(std::size_t size) noexcept {
  return malloc_fails() ? nullptr : __libc_malloc(size);
}
extern "C" void* calloc(std::size_t count, std::size_t size) noexcept {
  return malloc_fails() ? nullptr : __libc_calloc(count, size);
}
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return new_fails() ? nullptr : __libc_memalign(alignment, size);
}
#else
// protobuf 3.21 loses the string that it has made when there is no memory to keep it in the field.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:google::protobuf::RepeatedPtrField<std::__cxx11::basic_string*>::Add";
}
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  void* memory = nullptr;
  return new_fails() || ::posix_memalign(&memory, alignment, size) != 0 ? nullptr : memory;
}
#endif
