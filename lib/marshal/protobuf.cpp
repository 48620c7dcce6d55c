// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/marshal/protobuf.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <span>

#include "lib/marshal/protobuf_encoder.hpp"
#include "lib/marshal/protobuf_shape.hpp"
#include "lib/marshal/protobuf_walk.hpp"
#include "linkspan/marshal/protobuf_streams.hpp"

namespace linkspan::detail {

using google::protobuf::io::ArrayOutputStream;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

namespace {

constexpr std::size_t kMaxEncodedBytes = std::numeric_limits<int>::max();  // protobuf's own limit

Error too_large(std::size_t bytes, std::string_view limit, std::size_t most) {
  return {errc::limit_exceeded, std::to_string(bytes) + " bytes are more than " + std::string(limit) + " = " +
                                    std::to_string(most)};
}

// What protobuf or we have encoded is not payload: it counts as encoded in place, though it took two steps.
void write_encoded(std::span<const std::byte> bytes, ChainWriter& writer) {
  const std::span<std::byte> to = writer.reserve(bytes.size());
  if (to.empty()) return;
  std::ranges::copy(bytes, to.begin());  // tidy: moves handles, not bytes
  writer.commit(bytes.size());
}

Status check_required(const google::protobuf::Message& message) {
  if (message.IsInitialized()) return std::monostate();
  return Error(errc::malformed, "required fields are missing: " + message.InitializationErrorString());
}

// Empty values never become payloads.
std::size_t least_payload_bytes(const ProtobufOptions& options) {
  return std::max<std::size_t>(options.payload_threshold_bytes, 1);
}

// protobuf is much quicker with an array, for which it has no other depth than its default.
bool is_array(const Chain& chain, int max_depth) {
  return chain.slice_count() == 1 && max_depth == CodedInputStream::GetDefaultRecursionLimit();
}

bool parse_array(const Slice& slice, google::protobuf::Message& message) {
  return message.ParsePartialFromArray(slice.data(), static_cast<int>(slice.size()));
}

bool parse(const Chain& chain, int max_depth, google::protobuf::Message& message) {
  if (chain.empty()) return true;
  if (is_array(chain, max_depth)) return parse_array(chain.front(), message);
  BufferChainInputStream stream(chain);
  CodedInputStream coded(&stream);
  coded.SetRecursionLimit(max_depth);
  return message.MergePartialFromCodedStream(&coded) && coded.ConsumedEntireMessage();
}

// Finds tickets in a message that protobuf has encoded.
class TicketFinder final : public MessageWalk::Visitor {
 public:
  explicit TicketFinder(const Payloads& payloads) : payloads_(payloads), found_(payloads.count()) {}

  bool on_payload(MessageWalk& walk, std::size_t length_position, std::size_t length) override {
    if (length != Payloads::kTicketBytes) return walk.skip(length);
    const std::size_t length_bytes = walk.position() - length_position;
    std::array<char, Payloads::kTicketBytes> ticket;
    walk.read(ticket);
    const auto index = payloads_.index_of({ticket.data(), ticket.size()});
    if (!index) return true;
    const std::size_t payload_bytes = payloads_.find({ticket.data(), ticket.size()})->size();
    if (payload_bytes == 0) return walk.fail(errc::invalid_argument, "has a payload that was taken");
    if (found_[*index]) return walk.fail(errc::invalid_argument, "has the payload of another field, too");
    found_[*index] = true;
    walk.replace({length_position, length_bytes, length, payload_bytes, static_cast<std::uint32_t>(*index)});
    return true;
  }

  [[nodiscard]] bool found_all() const { return std::ranges::find(found_, false) == found_.end(); }

 private:
  const Payloads& payloads_;
  std::vector<bool> found_;
};

// Finds payloads in a message that came in.
class PayloadFinder final : public MessageWalk::Visitor {
 public:
  explicit PayloadFinder(const ProtobufOptions& options) : options_(options) {}

  bool on_payload(MessageWalk& walk, std::size_t length_position, std::size_t length) override {
    if (length < least_payload_bytes(options_)) return walk.skip(length);
    if (count_ == options_.limits.max_payloads) {
      return walk.fail(errc::limit_exceeded, "is one payload more than max_payloads");
    }
    if (length > options_.limits.max_payload_bytes - bytes_) {
      return walk.fail(errc::limit_exceeded, "makes more payload than max_payload_bytes");
    }
    const std::size_t length_bytes = walk.position() - length_position;
    walk.replace(
        {length_position, length_bytes, length, Payloads::kTicketBytes, static_cast<std::uint32_t>(count_)});
    ++count_;
    bytes_ += length;
    return walk.skip(length);
  }

 private:
  const ProtobufOptions& options_;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

// `parses`: protobuf has not refused these bytes already.
Status read_walking(const ProtobufOptions& options, const MessageShape& shape, Chain&& bytes,
                    google::protobuf::Message& message, Payloads& payloads, bool parses) {
  std::vector<Edit> edits;
  PayloadFinder finder(options);
  MessageWalk walk(bytes, finder, edits);
  if (!walk.run(shape, options.limits.max_depth)) return walk.error();

  Chain rest;
  if (!edits.empty()) {
    ChainWriter writer(heap_allocator(), {.reference_threshold_bytes = 0});
    std::size_t position = 0;
    for (const Edit& edit : edits) {
      writer.append(bytes.split_front(edit.position - position));
      position = edit.position + edit.old_length_bytes + edit.old_value_bytes;
      bytes.drop_front(edit.old_length_bytes);
      writer.write_varint(edit.length);
      if (edit.payload == Edit::kNoPayload) continue;
      const std::string ticket = payloads.add(bytes.split_front(edit.old_value_bytes));
      write_encoded(std::as_bytes(std::span(ticket)), writer);
    }
    writer.append(std::move(bytes));
    if (writer.error()) return Error(writer.error(), "memory is out");
    rest = writer.take();
  } else {
    rest = std::move(bytes);
  }
  if (!parses || !parse(rest, options.limits.max_depth, message)) {
    return Error(errc::malformed, "protobuf refuses the message, as it does when a string is not UTF-8");
  }
  return check_required(message);
}

}  // namespace

struct ProtobufMarshallerCore::Layout {
  Layout(const Message& prototype, const MessageShapes::Fields& payloads, ProtobufOptions&& options_in)
      : options(std::move(options_in)), shapes(*prototype.GetDescriptor(), payloads) {}

  ProtobufOptions options;
  MessageShapes shapes;
};

ProtobufMarshallerCore::ProtobufMarshallerCore(std::shared_ptr<const Layout> layout) noexcept
    : layout_(std::move(layout)) {}

Result<ProtobufMarshallerCore> ProtobufMarshallerCore::create(const Message& prototype,
                                                              ProtobufOptions&& options) {
  MessageShapes::Fields payloads;
  for (const std::string& path : options.payload_fields) {
    const auto field = find_payload_field(*prototype.GetDescriptor(), path);
    if (!field) return field.error();
    payloads.insert(field.value());
  }
  return ProtobufMarshallerCore(std::make_shared<const Layout>(prototype, payloads, std::move(options)));
}

// One message on its way out.
struct ProtobufMarshallerCore::Writing {
  const Layout& layout;
  const Message& message;
  const std::size_t message_bytes;  // without payloads

  // A message that is smaller than the threshold holds no string that is not. With a high threshold, large
  // messages still go block by block.
  [[nodiscard]] bool is_small(const ChainWriterOptions& writing) const {
    return message_bytes < std::min(writing.reference_threshold_bytes, kReferenceThreshold);
  }

  void write_flat(std::span<std::byte> to) const {
    if (!layout.options.deterministic) {
      message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(to.data()));
      return;
    }
    ArrayOutputStream stream(to.data(), static_cast<int>(to.size()));
    CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeWithCachedSizes(&coded);
  }

  void write_referenced(std::shared_ptr<const Message> owner, ChainWriter& writer) const {
    BufferChainOutputStream stream(writer, std::move(owner));
    {
      CodedOutputStream coded(&stream);
      coded.EnableAliasing(true);
      coded.SetSerializationDeterministic(layout.options.deterministic);
      // Fails with the writer, which keeps the error.
      write_referencing(message, layout.shapes.root(), writer.options().reference_threshold_bytes, coded);
    }
    stream.sync();
    if (stream.failed()) throw std::bad_alloc();
  }

  // `encoded` is the message with tickets; take_part writes a part of it.
  template <class TakePart>
  [[nodiscard]] Status splice(const Chain& encoded, Payloads& payloads, ChainWriter& writer,
                              TakePart take_part) const {
    std::vector<Edit> edits;
    TicketFinder finder(payloads);
    MessageWalk walk(encoded, finder, edits);
    if (!walk.run(layout.shapes.root(), std::numeric_limits<int>::max())) return walk.error();
    if (!finder.found_all()) {
      return Error(errc::invalid_argument, "a payload's ticket is in no payload field");
    }
    const std::size_t total = encoded.size() + static_cast<std::size_t>(walk.grown_by());
    if (total > kMaxEncodedBytes) return too_large(total, "protobuf's own limit", kMaxEncodedBytes);
    std::size_t position = 0;
    for (const Edit& edit : edits) {
      take_part(position, edit.position - position);
      writer.write_varint(edit.length);
      if (edit.payload != Edit::kNoPayload) writer.append(payloads.take(edit.payload));
      position = edit.position + edit.old_length_bytes + edit.old_value_bytes;
    }
    take_part(position, encoded.size() - position);
    return std::monostate();
  }

  // make_owner gives the owner of the message's strings, when it is needed.
  template <class MakeOwner>
  [[nodiscard]] Status run(MakeOwner make_owner, Payloads& payloads, ChainWriter& writer) const {
    if (payloads.count() == 0) {
      if (!is_small(writer.options())) {
        write_referenced(make_owner(), writer);
      } else if (message_bytes != 0) {
        const std::span<std::byte> to = writer.reserve(message_bytes);
        if (!to.empty()) write_flat(to.first(message_bytes));
        if (!to.empty()) writer.commit(message_bytes);
      }
    } else if (is_small(writer.options())) {
      std::array<std::byte, kReferenceThreshold> memory;
      const std::span<std::byte> flat = std::span(memory).first(message_bytes);
      write_flat(flat);
      const Chain encoded(Slice::immortal(flat));
      const auto take_part = [&](std::size_t from, std::size_t size) {
        write_encoded(flat.subspan(from, size), writer);
      };
      if (Status status = splice(encoded, payloads, writer, take_part); !status) return status;
    } else {
      ChainWriter aside(heap_allocator(), writer.options());
      write_referenced(make_owner(), aside);
      if (aside.error()) return Error(aside.error(), "memory is out");
      const Chain encoded = aside.take();
      const auto take_part = [&](std::size_t from, std::size_t size) {
        for (const Slice& slice : encoded.share(from, size)) {
          const bool is_small = slice.size() < writer.options().reference_threshold_bytes;
          is_small ? write_encoded(slice.bytes(), writer) : writer.append(slice);
        }
      };
      if (Status status = splice(encoded, payloads, writer, take_part); !status) return status;
    }
    if (writer.error()) return Error(writer.error(), "the writer's allocator has refused");
    return std::monostate();
  }

  // What can be said before anything is written.
  [[nodiscard]] Status check() const {
    if (!message.IsInitialized()) {
      return Error(errc::invalid_argument,
                   "required fields are missing: " + message.InitializationErrorString());
    }
    if (message_bytes > kMaxEncodedBytes) {
      return too_large(message_bytes, "protobuf's own limit", kMaxEncodedBytes);
    }
    return std::monostate();
  }
};

Status ProtobufMarshallerCore::write(Message& message, Share share, Payloads& payloads,
                                     ChainWriter& writer) const {
  const Writing writing{*layout_, message, message.ByteSizeLong()};
  if (Status status = writing.check(); !status) return status;
  if (writing.is_small(writer.options())) return writing.run([] { return nullptr; }, payloads, writer);
  const std::shared_ptr<const Message> owner = share(message);
  return Writing{*layout_, *owner, owner->ByteSizeLong()}.run([&] { return owner; }, payloads, writer);
}

Status ProtobufMarshallerCore::write(std::shared_ptr<const Message> message, Payloads& payloads,
                                     ChainWriter& writer) const {
  const Writing writing{*layout_, *message, message->ByteSizeLong()};
  if (Status status = writing.check(); !status) return status;
  return writing.run([&] { return std::move(message); }, payloads, writer);
}

Status ProtobufMarshallerCore::read(Chain&& bytes, Message& message, Payloads& payloads) const {
  const ProtobufOptions& options = layout_->options;
  const std::size_t most = std::min(options.limits.max_message_bytes, kMaxEncodedBytes);
  if (bytes.size() > most) return too_large(bytes.size(), "max_message_bytes", most);
  const int max_depth = options.limits.max_depth;
  const MessageShape& shape = layout_->shapes.root();
  // The short way, for messages that have no payloads or are too small for one. If protobuf refuses, the walk
  // says what is wrong and where.
  const bool no_payloads = bytes.size() < least_payload_bytes(options) || !shape.has_payloads();
  if (no_payloads && is_array(bytes, max_depth) && lengths_fit(bytes.front().bytes(), shape, max_depth)) {
    if (parse_array(bytes.front(), message)) return check_required(message);
    return read_walking(options, shape, std::move(bytes), message, payloads, false);
  }
  return read_walking(options, shape, std::move(bytes), message, payloads, true);
}

}  // namespace linkspan::detail
