// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the tests of the marshal room share.
#pragma once

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/message_differencer.h>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/chain_writer.hpp"

namespace linkspan::test {

using Random = std::mt19937_64;

inline std::size_t below(Random& rng, std::size_t bound) {
  return rng() % bound;
}

inline std::string random_text(Random& rng, std::size_t size) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>('a' + below(rng, 26));
  return text;
}

/// A chain of immortal slices over `bytes`, which has to outlive it: one slice a cut.
inline Chain cut_at(std::string_view bytes, std::initializer_list<std::size_t> cuts) {
  Chain chain;
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    chain.append(Slice::immortal(bytes.substr(from, cut - from)));
    from = cut;
  }
  chain.append(Slice::immortal(bytes.substr(from)));
  return chain;
}

inline Chain cut_randomly(Random& rng, std::string_view bytes, std::size_t max_piece) {
  Chain chain;
  while (!bytes.empty()) {
    const std::size_t size = 1 + below(rng, std::min(max_piece, bytes.size()));
    chain.append(Slice::immortal(bytes.substr(0, size)));
    bytes.remove_prefix(size);
  }
  return chain;
}

/// As protobuf itself writes the message, maps in the order of their keys.
inline std::string serialize_deterministically(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializePartialToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

/// Fills fields of any kind, extensions too. Maps get one entry at most, unless more is asked for: in what
/// order protobuf writes them is not defined.
inline void fill(google::protobuf::Message& message, Random& rng, int depth, int map_entries = 1) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  type.file()->pool()->FindAllExtensions(&type, &fields);
  for (int i = 0; i < type.field_count(); ++i) fields.push_back(type.field(i));
  for (const FieldDescriptor* field : fields) {
    const bool nested = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    const bool too_deep = nested && depth < (field->is_map() ? 2 : 1);
    const bool optional = !field->is_required() && !type.options().map_entry();
    if (too_deep || (optional && below(rng, 2) == 0)) continue;
    const std::size_t sizes[] = {0, 3, 40, 300, 2047, 2048, 5000};
    const std::string text = random_text(rng, sizes[below(rng, std::size(sizes))]);
    const int count = !field->is_repeated() ? 1
                      : field->is_map()     ? map_entries
                                            : static_cast<int>(below(rng, 4));
    for (int k = 0; k < count; ++k) {
      const bool add = field->is_repeated();
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_MESSAGE:
          fill(add ? *reflection.AddMessage(&message, field) : *reflection.MutableMessage(&message, field),
               rng, depth - 1, map_entries);
          break;
        case FieldDescriptor::CPPTYPE_STRING:
          add ? reflection.AddString(&message, field, text) : reflection.SetString(&message, field, text);
          break;
        case FieldDescriptor::CPPTYPE_INT32: {
          const auto value = static_cast<std::int32_t>(rng());
          add ? reflection.AddInt32(&message, field, value) : reflection.SetInt32(&message, field, value);
          break;
        }
        case FieldDescriptor::CPPTYPE_INT64:
          reflection.SetInt64(&message, field, static_cast<std::int64_t>(rng()));
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          reflection.SetUInt32(&message, field, static_cast<std::uint32_t>(rng()));
          break;
        case FieldDescriptor::CPPTYPE_UINT64: reflection.SetUInt64(&message, field, rng()); break;
        case FieldDescriptor::CPPTYPE_DOUBLE: reflection.SetDouble(&message, field, 0.5); break;
        case FieldDescriptor::CPPTYPE_BOOL: reflection.SetBool(&message, field, true); break;
        case FieldDescriptor::CPPTYPE_ENUM: reflection.SetEnumValue(&message, field, 1); break;
        default: break;
      }
    }
  }
  if (below(rng, 4) == 0) {
    google::protobuf::UnknownFieldSet& unknown = *reflection.MutableUnknownFields(&message);
    unknown.AddVarint(2000, rng());
    unknown.AddLengthDelimited(2001, random_text(rng, below(rng, 3000)));
    unknown.AddGroup(2002)->AddFixed32(100, 7);
  }
}

inline bool equal(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

/// Refuses after `allowed` blocks.
class RefusingAllocator final : public BlockAllocator {
 public:
  explicit RefusingAllocator(std::size_t allowed) : left_(allowed) {}
  Block allocate(std::size_t size) noexcept override {
    return left_ == 0 ? Block() : (--left_, heap_allocator().allocate(size));
  }

 private:
  std::size_t left_;
};

}  // namespace linkspan::test
