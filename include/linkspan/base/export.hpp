// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// LINKSPAN_API marks what the shared library exports. The library is compiled with hidden visibility, so a
// class or function without the mark is not there for other programs.
//
// Not for: templates and inline functions that a caller instantiates itself; they need no export.
// Cost: none at run time.
// Threads: macros only, nothing to share.

#pragma once

// A static library exports nothing. LINKSPAN_STATIC says so, and keeps Linkspan's symbols out of the exports
// of a shared object that a static Linkspan is linked into.
#if defined(LINKSPAN_STATIC) || !defined(__GNUC__)
#define LINKSPAN_API
#define LINKSPAN_HIDDEN
#else
#define LINKSPAN_API __attribute__((visibility("default")))
#define LINKSPAN_HIDDEN __attribute__((visibility("hidden")))
#endif
