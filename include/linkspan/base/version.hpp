// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// The version of the headers that a program was compiled with, as numbers that the preprocessor can compare.
//
// Not for: asking which features are active; a transport's Capabilities answer that at run time.
// Cost: none, there is nothing but macros.
// Threads: macros only, nothing to share.

#pragma once

#define LINKSPAN_VERSION_MAJOR 0
#define LINKSPAN_VERSION_MINOR 1
#define LINKSPAN_VERSION_PATCH 0

/// One number that grows with each release: 0.1.0 is 100, 1.2.3 is 10203.
#define LINKSPAN_VERSION \
  (LINKSPAN_VERSION_MAJOR * 10000 + LINKSPAN_VERSION_MINOR * 100 + LINKSPAN_VERSION_PATCH)
