// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The pipeline of both sides of the benchmark `block-read` on Linkspan: frames with a length in front,
// protobuf messages in them, and payloads that are references, or, for comparison, protobuf's own strings.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "block.pb.h"
#include "linkspan/channel/channel.hpp"
#include "linkspan/codec/length_prefix_codec.hpp"
#include "linkspan/marshal/marshaller.hpp"
#include "linkspan/marshal/protobuf.hpp"
#include "perf/support/byte_sum.h"

namespace linkspan::perf {

/// As ProtobufMarshaller, unless a channel copies: then as plain protobuf, which serialises to one array and
/// parses into strings.
template <class M>
class BlockMarshaller {
 public:
  using Message = Envelope<M>;

  explicit BlockMarshaller(std::shared_ptr<const bool> copies)
      : referenced_(ProtobufMarshaller<M>::create().value_or_throw()), copies_(std::move(copies)) {}

  [[nodiscard]] std::size_t size_hint(const Message& envelope) const { return envelope.size_bytes(); }
  [[nodiscard]] std::string_view name() const { return referenced_.name(); }

  [[nodiscard]] Status write(Message&& envelope, ChainWriter& writer) const {
    if (!*copies_) return referenced_.write(std::move(envelope), writer);
    std::string bytes = envelope.message.SerializeAsString();
    count_copied(bytes.size(), CopyPlace::marshal);
    writer.append(Slice::adopt(std::move(bytes)));
    return std::monostate{};
  }

  [[nodiscard]] Result<Message> read(Chain&& bytes) const {
    if (!*copies_) return referenced_.read(std::move(bytes));
    Result<Message> result{Message()};
    BufferChainInputStream stream(bytes);
    if (!result.value().message.ParseFromZeroCopyStream(&stream)) return Error(errc::malformed, "protobuf");
    count_copied(bytes.size(), CopyPlace::marshal);
    return result;
  }

 private:
  ProtobufMarshaller<M> referenced_;
  std::shared_ptr<const bool> copies_;
};

/// Larger than the defaults, so that a chunk is queued while another one is sent.
inline ChannelOptions block_channel_options() {
  ChannelOptions options;
  options.stream.high_watermark_bytes = std::size_t{1} << 20;
  options.stream.low_watermark_bytes = std::size_t{512} << 10;
  return options;
}

/// `copies` is looked at for each message.
template <class In, class Out, class Last>
Status fill_block_pipeline(Channel& channel, const std::shared_ptr<const bool>& copies,
                           std::unique_ptr<Last> last) {
  using Codec = MarshalCodec<BlockMarshaller<In>, BlockMarshaller<Out>>;
  return channel.pipeline().append(
      std::make_unique<LengthPrefixCodec>(),
      std::make_unique<Codec>(BlockMarshaller<In>(copies), BlockMarshaller<Out>(copies)), std::move(last));
}

/// The data of a chunk, which was received; `data` is its field. Summed, if there is a sum; then released.
inline std::size_t consume(Payloads& payloads, std::string_view data, byte_sum* sum) {
  if (payloads.find(data) == nullptr) {
    if (sum != nullptr) byte_sum_add(sum, data.data(), data.size());
    return data.size();
  }
  const Chain chain = payloads.take(data);
  if (sum != nullptr) {
    for (const Slice& slice : chain) byte_sum_add(sum, slice.view().data(), slice.size());
  }
  return chain.size();
}

/// Sets the data of a chunk that is sent: a reference, or a copy.
template <class M>
void set_data(Payloads& payloads, M& message, Slice data, bool copies) {
  if (copies) {
    message.set_data(data.data(), data.size());
    count_copied(data.size(), CopyPlace::marshal);
  } else {
    message.set_data(payloads.add(Chain(std::move(data))));
  }
}

inline Slice immortal_block(std::span<const char> block) {
  return Slice::immortal(std::as_bytes(block));
}

}  // namespace linkspan::perf
