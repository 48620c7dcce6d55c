// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// protobuf's ZeroCopyOutputStream and ZeroCopyInputStream over ChainWriter and Chain.
// Not for: messages with large bytes fields; ProtobufMarshaller (protobuf.hpp) spares those the copies that
// protobuf makes when it parses, and of repeated fields and maps when it serialises.
// Cost: writing hands out windows of the writer's block, which rejoin as one slice; reading copies nothing.
// Threads: none; a stream belongs to one thread.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "linkspan/base/export.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/chain_writer.hpp"
#include "linkspan/buffer/cursor.hpp"

namespace linkspan {

/// Writes to the end of a ChainWriter. What was written is in the writer once the stream is destroyed or
/// sync() was called; the writer must not be used in between.
///
/// protobuf offers a string by reference when it does not fit into the window at hand. So windows have the
/// size of the writer's reference threshold (at least kMinWindowBytes): then every singular string of that
/// size is referenced, wherever in the message it stands. Repeated strings and map values never are. Use:
///
///     auto owner = std::make_shared<const M>(std::move(message));
///     BufferChainOutputStream stream(writer, owner);
///     io::CodedOutputStream coded(&stream);
///     coded.EnableAliasing(true);  // SerializeToZeroCopyStream never aliases
///     owner->SerializeToCodedStream(&coded);
class LINKSPAN_API BufferChainOutputStream final : public google::protobuf::io::ZeroCopyOutputStream {
 public:
  /// Below this, protobuf goes through a buffer of its own.
  static constexpr std::size_t kMinWindowBytes = 64;

  /// `owner` keeps the referenced strings alive, until the last slice of them is released: usually the
  /// message, or its arena. Without an owner nothing is referenced.
  explicit BufferChainOutputStream(ChainWriter& writer, std::shared_ptr<const void> owner = nullptr) noexcept;
  ~BufferChainOutputStream() override;

  /// False once the allocator has refused, which the writer's error() says, too, or memory for references is
  /// out: failed(). Nothing is thrown at protobuf, whose own destructors call this.
  bool Next(void** data, int* size) override;
  void BackUp(int count) override;
  /// Bytes written through this stream.
  [[nodiscard]] std::int64_t ByteCount() const override;
  /// References strings of at least the writer's threshold and copies smaller ones.
  bool WriteAliasedRaw(const void* data, int size) override;
  [[nodiscard]] bool AllowsAliasing() const override { return owner_ != nullptr; }

  /// Gives the bytes written so far to the writer.
  void sync() noexcept;
  /// Memory for references was out (std::bad_alloc): what is in the writer is not whole.
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  ChainWriter& writer_;
  std::shared_ptr<const void> owner_;
  std::size_t start_;        // size of the writer before us
  std::size_t pending_ = 0;  // bytes of the last window that were not backed up, not committed yet
  bool failed_ = false;
};

/// Reads a Chain slice by slice, without copying. The chain has to outlive the stream and stay unchanged.
class LINKSPAN_API BufferChainInputStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit BufferChainInputStream(const Chain& chain) noexcept : cursor_(chain) {}
  ~BufferChainInputStream() override;

  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  [[nodiscard]] std::int64_t ByteCount() const override;

 private:
  Cursor cursor_;            // in front of the window that was handed out last
  std::size_t pending_ = 0;  // bytes of that window that were not backed up
};

}  // namespace linkspan
