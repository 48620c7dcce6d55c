// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// liburing's configure script writes a file of this name. With the kernel headers that meson.build asks for,
// the types that it would have to supply are all there.
#ifndef LIBURING_COMPAT_H
#define LIBURING_COMPAT_H

#include <linux/openat2.h>
#include <linux/time_types.h>

#endif
