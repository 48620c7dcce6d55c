// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/descriptor_message.hpp"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "linkspan/base/assert.hpp"
#include "linkspan/base/error.hpp"

namespace linkspan {

const msghdr& DescriptorMessage::to_send(std::span<iovec> vectors,
                                         std::span<const Socket> descriptors) noexcept {
  LINKSPAN_ASSERT(descriptors.size() <= kDescriptorsMost, "a message carries as many as the kernel takes");
  const std::size_t bytes = descriptors.size() * sizeof(int);
  message_ = {};
  message_.msg_iov = vectors.data();
  message_.msg_iovlen = vectors.size();
  message_.msg_control = control_.data();
  message_.msg_controllen = CMSG_LEN(bytes);  // without the padding
  cmsghdr* header = CMSG_FIRSTHDR(&message_);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(bytes);
  int* to = reinterpret_cast<int*>(CMSG_DATA(header));
  for (const Socket& descriptor : descriptors) *to++ = descriptor.descriptor();
  return message_;
}

msghdr& DescriptorMessage::to_receive(std::span<std::byte> memory, std::size_t most) noexcept {
  vector_ = {memory.data(), memory.size()};
  message_ = {};
  message_.msg_iov = &vector_;
  message_.msg_iovlen = 1;
  message_.msg_control = control_.data();
  message_.msg_controllen = CMSG_LEN(most * sizeof(int));  // without the padding, where one more would fit
  return message_;
}

Result<std::vector<Socket>, std::error_code> DescriptorMessage::take(std::size_t most) {
  std::vector<Socket> descriptors;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message_); header != nullptr;
       header = CMSG_NXTHDR(&message_, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const int* from = reinterpret_cast<const int*>(CMSG_DATA(header));
    descriptors.reserve(descriptors.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
      if (kReceiveFlags == 0) static_cast<void>(::fcntl(from[i], F_SETFD, FD_CLOEXEC));
      descriptors.emplace_back(from[i]);
    }
  }
  message_.msg_controllen = 0;  // they are taken once
  if ((message_.msg_flags & MSG_CTRUNC) == 0) return descriptors;
  return descriptors.size() < most ? system_error_code(EMFILE) : make_error_code(errc::limit_exceeded);
}

}  // namespace linkspan
