// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The queues of other libraries, as far as this build found them.
#pragma once

namespace linkspan::perf {

void add_evbuffer();
void add_cord();
void add_grpc_slice_buffer();

inline void add_peer_queues() {
#if LINKSPAN_PERF_LIBEVENT
  add_evbuffer();
#endif
#if LINKSPAN_PERF_ABSL
  add_cord();
#endif
#if LINKSPAN_PERF_GRPC
  add_grpc_slice_buffer();
#endif
}

}  // namespace linkspan::perf
