// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Whether this build carries a sanitizer, so that heavy tests can do less.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LINKSPAN_SANITIZED 1
#elif defined(__has_feature)
#define LINKSPAN_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define LINKSPAN_SANITIZED 0
#endif

namespace linkspan::test {

inline constexpr bool kSanitized = LINKSPAN_SANITIZED;

/// Children of a fork that start threads are left out then: ThreadSanitizer reports a "dup thread with used
/// id", which is the tool's own doing.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kThreadSanitized = __has_feature(thread_sanitizer);
#else
inline constexpr bool kThreadSanitized = false;
#endif

}  // namespace linkspan::test
