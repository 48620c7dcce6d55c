// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The message's own strings on their way out: where they are referenced, and that the bytes are protobuf's.
#include <doctest/doctest.h>
#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "archive.pb.h"
#include "legacy.pb.h"
#include "linkspan/marshal/protobuf.hpp"
#include "marshal/support.hpp"
#include "record.pb.h"

using namespace linkspan;
using namespace linkspan::test;

namespace {

template <class M>
ProtobufMarshaller<M> deterministic() {
  ProtobufOptions options;
  options.deterministic = true;
  return ProtobufMarshaller<M>::create(std::move(options)).value_or_throw();
}

template <class M>
Chain write_shared(const ProtobufMarshaller<M>& marshaller, const std::shared_ptr<const M>& message) {
  ChainWriter writer(heap_allocator());
  const Status status = marshaller.write(message, writer);
  CHECK(status.ok());
  return writer.take();
}

bool references(const Chain& chain, const std::string& value) {
  return std::any_of(chain.begin(), chain.end(), [&](const Slice& slice) {
    return static_cast<const void*>(slice.data()) == value.data() && slice.size() == value.size();
  });
}

std::string large(char c) {
  return std::string(5000, c);
}

template <class M>
void check_random_messages(int rounds) {
  Random rng(11);
  const auto marshaller = deterministic<M>();
  for (int round = 0; round < rounds; ++round) {
    const auto message = std::make_shared<M>();
    fill(*message, rng, 3, 5);
    const std::string expected = serialize_deterministically(*message);
    CHECK((write_shared<M>(marshaller, message) == expected));
    ChainWriter writer(heap_allocator());
    REQUIRE(marshaller.write({M(*message)}, writer).ok());
    CHECK((writer.take() == expected));
  }
}

}  // namespace

TEST_CASE("random messages are written as protobuf writes them") {
  check_random_messages<Archive>(300);
  check_random_messages<Record>(300);
  check_random_messages<EarlyRecord>(300);
  check_random_messages<Legacy>(300);
  check_random_messages<LegacyMap>(300);
}

TEST_CASE("large strings are referenced wherever they are") {
  const auto archive = std::make_shared<Archive>();
  archive->set_name(large('a'));
  archive->mutable_first()->set_name(large('b'));
  archive->add_parts()->mutable_inner()->set_name(large('c'));
  archive->add_lines("short");
  archive->add_lines(large('d'));
  archive->add_pieces(large('e'));
  (*archive->mutable_blobs())["blob"] = large('f');
  (*archive->mutable_notes())[-3] = large('g');
  (*archive->mutable_plain())[7] = large('h');
  (*archive->mutable_index())["part"].mutable_inner()->add_lines(large('i'));
  archive->set_url(large('j'));
  archive->GetReflection()->MutableUnknownFields(archive.get())->AddLengthDelimited(2000, large('k'));
  const CopyScope scope;
  const Chain chain = write_shared<Archive>(deterministic<Archive>(), archive);
  CHECK(scope.copied().total() == 0);
  CHECK((chain == serialize_deterministically(*archive)));
  CHECK(references(chain, archive->name()));
  CHECK(references(chain, archive->first().name()));
  CHECK(references(chain, archive->parts(0).inner().name()));
  CHECK(references(chain, archive->lines(1)));
  CHECK(references(chain, archive->pieces(0)));
  CHECK(references(chain, archive->blobs().at("blob")));
  CHECK(references(chain, archive->notes().at(-3)));
  CHECK(references(chain, archive->plain().at(7)));
  CHECK(references(chain, archive->index().at("part").inner().lines(0)));
  CHECK(references(chain, archive->url()));
  CHECK(references(chain, archive->GetReflection()->GetUnknownFields(*archive).field(0).length_delimited()));
}

TEST_CASE("large strings in extensions, groups and maps of messages are referenced") {
  const auto map = std::make_shared<LegacyMap>();
  Legacy& legacy = (*map->mutable_by_number())[1];
  legacy.set_id(1);
  legacy.SetExtension(attachment, large('a'));
  legacy.AddExtension(attachments, large('b'));
  Legacy& other = *legacy.AddExtension(others);
  other.set_id(2);
  other.mutable_pair()->set_left(large('c'));
  map->add_entry()->set_data(large('d'));
  (*map->mutable_by_flag())[true] = large('e');
  const Chain chain = write_shared<LegacyMap>(deterministic<LegacyMap>(), map);
  CHECK((chain == serialize_deterministically(*map)));
  CHECK(references(chain, legacy.GetExtension(attachment)));
  CHECK(references(chain, legacy.GetExtension(attachments, 0)));
  CHECK(references(chain, other.pair().left()));
  CHECK(references(chain, map->entry(0).data()));
  CHECK(references(chain, map->by_flag().at(true)));
}

TEST_CASE("large unknown fields are referenced in messages at any depth, and in groups") {
  const auto add_unknown = [](google::protobuf::Message& message, char c) {
    google::protobuf::UnknownFieldSet& fields = *message.GetReflection()->MutableUnknownFields(&message);
    fields.AddVarint(2000, 1);
    fields.AddLengthDelimited(2001, large(c));
    fields.AddGroup(2002)->AddLengthDelimited(1, large(static_cast<char>(c + 1)));
  };
  const auto check = [](const Chain& chain, const google::protobuf::Message& message) {
    const google::protobuf::UnknownFieldSet& fields = message.GetReflection()->GetUnknownFields(message);
    CHECK(references(chain, fields.field(1).length_delimited()));
    CHECK(references(chain, fields.field(2).group().field(0).length_delimited()));
  };
  const auto early = std::make_shared<EarlyRecord>();  // protobuf copies no other string of this type
  early->set_name("name");
  early->mutable_meta()->set_name(large('a'));
  early->mutable_meta()->mutable_parent()->add_deltas(7);
  add_unknown(*early->mutable_meta()->mutable_parent(), 'b');
  const CopyScope scope;
  const Chain chain = write_shared<EarlyRecord>(deterministic<EarlyRecord>(), early);
  CHECK((chain == serialize_deterministically(*early)));
  CHECK(references(chain, early->meta().name()));
  check(chain, early->meta().parent());

  const auto record = std::make_shared<Record>();
  add_unknown(*record, 'd');
  add_unknown(*record->mutable_meta(), 'f');
  add_unknown(*record->add_history(), 'h');
  add_unknown((*record->mutable_children())[3], 'j');
  (*record->mutable_children())[4].set_name("small");
  (*record->mutable_numbers())["key"] = 5;
  const Chain all = write_shared<Record>(deterministic<Record>(), record);
  CHECK((all == serialize_deterministically(*record)));
  check(all, *record);
  check(all, record->meta());
  check(all, record->history(0));
  check(all, record->children().at(3));
  CHECK(scope.copied().total() == 0);
}

TEST_CASE("a map's large key is copied, and counted") {
  const auto archive = std::make_shared<Archive>();
  (*archive->mutable_blobs())[large('k')] = large('v');
  const CopyScope scope;
  const Chain chain = write_shared<Archive>(deterministic<Archive>(), archive);
  CHECK((chain == serialize_deterministically(*archive)));
  CHECK(scope.copied()[CopyPlace::marshal] == large('k').size());
  CHECK(scope.copied().total() == large('k').size());
}

TEST_CASE("a message that is handed over moves, and lives as long as the slices") {
  Archive archive;
  archive.add_lines(large('l'));
  const void* const line = archive.lines(0).data();
  ChainWriter writer(heap_allocator());
  REQUIRE(deterministic<Archive>().write({std::move(archive)}, writer).ok());
  const Chain chain = writer.take();
  CHECK(std::any_of(chain.begin(), chain.end(), [&](const Slice& slice) { return slice.data() == line; }));
  CHECK(chain.back().view() == large('l'));
}

TEST_CASE("several threads write a message that they share") {
  Random rng(17);
  const auto archive = std::make_shared<Archive>();
  fill(*archive, rng, 3, 5);
  archive->add_lines(large('l'));
  (*archive->mutable_notes())[5] = large('n');
  const std::string expected = serialize_deterministically(*archive);
  const auto marshaller = deterministic<Archive>();
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, shared = std::shared_ptr<const Archive>(archive)] {
      for (int round = 0; round < 100; ++round) {
        ChainWriter writer(heap_allocator());
        if (marshaller.write(shared, writer).ok() && writer.take() == expected) ++equal;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(equal == 400);
  CHECK(archive.use_count() == 1);
}

TEST_CASE("a message on an arena is referenced while its shared_ptr owns the arena") {
  auto arena = std::make_shared<google::protobuf::Arena>();
  const std::weak_ptr<google::protobuf::Arena> alive = arena;
  auto* const made = google::protobuf::Arena::CreateMessage<Archive>(arena.get());
  made->add_lines(large('l'));
  const std::string& line = made->lines(0);
  std::shared_ptr<const Archive> archive(std::move(arena), made);
  ChainWriter writer(heap_allocator());
  REQUIRE(deterministic<Archive>().write(std::move(archive), writer).ok());
  Chain chain = writer.take();
  CHECK(references(chain, line));
  CHECK_FALSE(alive.expired());
  chain.clear();
  CHECK(alive.expired());
}
