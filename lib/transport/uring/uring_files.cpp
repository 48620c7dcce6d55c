// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/uring_files.hpp"

#include <fcntl.h>

#include <algorithm>
#include <chrono>

namespace linkspan {
namespace {

// Of one call: the kernel takes at most 2 GiB less a page, and the length has 32 bits.
constexpr std::size_t kBytesPerCall = std::size_t{1} << 30;

// A call that cannot be cancelled, as one that the disk is at, counts as missed all the time.
constexpr Duration kCancelPause = std::chrono::milliseconds(10);

constexpr struct {
  FileCall::Kind kind;
  int operation;
} kOperations[] = {
    {FileCall::Kind::open, IORING_OP_OPENAT},     {FileCall::Kind::read, IORING_OP_READ},
    {FileCall::Kind::write, IORING_OP_WRITEV},    {FileCall::Kind::sync, IORING_OP_FSYNC},
    {FileCall::Kind::size, IORING_OP_STATX},      {FileCall::Kind::rename, IORING_OP_RENAMEAT},
    {FileCall::Kind::remove, IORING_OP_UNLINKAT}, {FileCall::Kind::close, IORING_OP_CLOSE},
};

}  // namespace

UringFiles::UringFiles(Ring& ring) : ring_(ring) {
  for (const auto& [kind, operation] : kOperations) {
    known_[static_cast<std::size_t>(kind)] = ring.knows(operation);
  }
}

void UringFiles::start(FileCall& call) {
  if (free_.empty()) free_.push_back(*slots_.emplace_back(std::make_unique<Slot>(*this)));
  Slot& slot = free_.pop_front();
  slot.call = &call;
  in_flight_.push_back(slot);
  io_uring_sqe& entry = ring_.next_entry();
  prepare(entry, slot);
  entry.user_data = slot.key(0);
}

void UringFiles::prepare(io_uring_sqe& entry, Slot& slot) noexcept {
  const FileCall& call = *slot.call;
  switch (call.kind) {
    case FileCall::Kind::open:
      io_uring_prep_openat(&entry, AT_FDCWD, call.path, open_flags(call.mode), kNewFilePermissions);
      break;
    case FileCall::Kind::read:
      io_uring_prep_read(&entry, call.descriptor, call.into.data(),
                         static_cast<unsigned>(std::min(call.into.size(), kBytesPerCall)), call.offset);
      break;
    case FileCall::Kind::write: {
      const std::size_t count = call.from->export_iovec(slot.vectors, kBytesPerCall).count;
      io_uring_prep_writev(&entry, call.descriptor, slot.vectors.data(), static_cast<unsigned>(count),
                           call.offset);
      break;
    }
    case FileCall::Kind::sync: io_uring_prep_fsync(&entry, call.descriptor, 0); break;
    case FileCall::Kind::size:
      io_uring_prep_statx(&entry, call.descriptor, "", AT_EMPTY_PATH, STATX_SIZE | STATX_TYPE, &slot.status);
      break;
    case FileCall::Kind::rename:
      io_uring_prep_renameat(&entry, AT_FDCWD, call.path, AT_FDCWD, call.to_path, 0);
      break;
    case FileCall::Kind::remove: io_uring_prep_unlinkat(&entry, AT_FDCWD, call.path, 0); break;
    case FileCall::Kind::close: io_uring_prep_close(&entry, call.descriptor); break;
  }
}

void UringFiles::Slot::on_completion(unsigned, int result, unsigned) {
  files.finish(*this, result);
}

void UringFiles::finish(Slot& slot, int result) {
  FileCall& call = *slot.call;
  if (call.kind == FileCall::Kind::size && result >= 0) {
    call.size_bytes = slot.status.stx_size;
    call.is_directory = S_ISDIR(slot.status.stx_mode);
  }
  slot.ListNode<Slot>::unlink();
  free_.push_front(slot);
  call.on_result(result);
}

void UringFiles::finish_all() {
  while (!in_flight_.empty()) {
    for (Slot* slot = in_flight_.first(); slot != nullptr; slot = in_flight_.next(*slot)) {
      io_uring_sqe& entry = ring_.next_entry();
      io_uring_prep_cancel64(&entry, slot->key(0), 0);
      entry.user_data = ignored_.key(0);
    }
    const TimePoint again = std::chrono::steady_clock::now() + kCancelPause;
    for (Duration left = kCancelPause; left > Duration::zero() && !in_flight_.empty();
         left = again - std::chrono::steady_clock::now()) {
      ring_.wait(left);
      ring_.dispatch(1);
    }
  }
}

}  // namespace linkspan
