// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The system calls on datagram sockets: making them, batches of messages, and refusals of the network. What a
// system does not have is left out here, and nowhere else.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/transport/datagram.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/socket.hpp"

#if defined(__linux__) || defined(__FreeBSD__)
#define LINKSPAN_HAS_MESSAGE_BATCHES 1
#else
#define LINKSPAN_HAS_MESSAGE_BATCHES 0
#endif

namespace linkspan {

#if LINKSPAN_HAS_MESSAGE_BATCHES
using MessageHeader = mmsghdr;
#else
struct MessageHeader {
  msghdr msg_hdr;
  unsigned msg_len;
};
#endif

/// More than any UDP socket receives at once, coalesced or not.
inline constexpr std::size_t kMaxReceiveBytes = std::size_t{64} * 1024;
/// Refusals are in a queue of their own, with their destinations; errors of other calls only repeat them.
#ifdef __linux__
inline constexpr bool kHasRefusalQueue = true;
#else
inline constexpr bool kHasRefusalQueue = false;
#endif
/// Enough for an address of any family.
inline constexpr std::size_t kAddressBytes = 128;
/// Room for what comes with a message of UDP: how it was coalesced, and what an adopted socket asks for. Unix
/// sockets get none: a descriptor that a peer passes is not let in.
inline constexpr std::size_t kControlBytes = 128;

/// A datagram socket that is set up, and what it can do.
struct ReadyDatagramSocket {
  Socket socket;
  int family = AF_UNSPEC;
  bool segments = false;   ///< takes several messages of one size at once
  bool coalesces = false;  ///< brings several at once
  std::string path;        ///< of a unix socket that was bound here, to be removed at its end
};

[[nodiscard]] Status check_datagram_options(const DatagramOptions& options);
/// The family of such a socket, or what is wrong with these options.
[[nodiscard]] Result<int> datagram_family(const Endpoint& local, const DatagramOptions& options);

/// Bound to `local`, or not at all when that is no Endpoint; connected when the options say so.
[[nodiscard]] Result<ReadyDatagramSocket> make_datagram_socket(const Endpoint& local,
                                                               const DatagramOptions& options);
/// The same for a socket that was made elsewhere.
[[nodiscard]] Result<ReadyDatagramSocket> adopt_datagram_socket(Socket socket,
                                                                const DatagramOptions& options);

/// From now on it brings one message at a time.
void stop_coalescing(ReadyDatagramSocket& ready) noexcept;

/// A unix socket that becomes writable when `to` has room again; none when that cannot be waited for.
[[nodiscard]] Socket make_room_probe(const Endpoint& to) noexcept;

/// Whether there is room in the socket's own buffer; false: it is full.
[[nodiscard]] bool has_send_room(int descriptor) noexcept;

/// The first messages of `messages`: how many were sent, or -1 and errno. `batched`: in one call, if there is
/// one. Never blocks.
[[nodiscard]] int send_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept;
/// How many were received, into the first of `messages`, or -1 and errno. Never blocks.
[[nodiscard]] int receive_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept;

/// Room for the control message of a segmented send.
using SegmentControl = std::byte[CMSG_SPACE(sizeof(std::uint16_t))];
/// Makes `message` be sent as messages of `segment_bytes` (the last one of what is left). `control` has to
/// stay until it is sent.
void send_in_segments(msghdr& message, SegmentControl& control, std::size_t segment_bytes) noexcept;
/// The length of the messages that `message`, as received, was coalesced from; 0: it is one.
[[nodiscard]] std::size_t segment_bytes_of(const msghdr& message) noexcept;

struct Refusal {
  int error;    ///< 0: nothing of the network
  Endpoint to;  ///< where the refused message went
};
/// Takes the next refusal from the socket's queue of errors; nothing when that is empty, or the system has
/// none.
[[nodiscard]] std::optional<Refusal> take_refusal(int descriptor) noexcept;

/// Names of what sockets of this system can do: see Transport::capabilities.
void add_datagram_capabilities(std::vector<std::string>& names);

}  // namespace linkspan
