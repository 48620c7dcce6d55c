// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Messages over connections: that large ones go there and back without a copy, and that what they reference
// is released once, and only then, whatever becomes of the connection.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/channel/client.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/codec/length_prefix_codec.hpp"
#include "linkspan/marshal/marshaller.hpp"
#include "linkspan/marshal/protobuf.hpp"
#include "record.pb.h"
#include "tests/channel/own_loop.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

constexpr std::size_t kMostBytes = std::size_t{128} << 20;

ProtobufMarshaller<Record> records(std::vector<std::string> payload_fields) {
  ProtobufOptions options;
  options.payload_fields = std::move(payload_fields);
  options.limits.max_message_bytes = kMostBytes;
  options.limits.max_payload_bytes = kMostBytes;
  return ProtobufMarshaller<Record>::create(std::move(options)).value_or_throw();
}

/// Reads nothing; what it writes are messages that others hold, too.
class SharedRecords {
 public:
  using Message = std::shared_ptr<const Record>;
  [[nodiscard]] std::size_t size_hint(const Message& message) const { return message->ByteSizeLong(); }
  [[nodiscard]] Status write(Message&& message, ChainWriter& writer) const {
    return records_.write(std::move(message), writer);
  }
  [[nodiscard]] Result<Message> read(Chain&&) const { return Error(errc::unavailable, "reads nothing"); }
  [[nodiscard]] std::string_view name() const { return records_.name(); }

 private:
  ProtobufMarshaller<Record> records_ = records({});
};

static_assert(Marshaller<SharedRecords> && Marshaller<ProtobufMarshaller<Record>>);

/// What the last handlers of the two sides have seen; outlives them.
struct Seen {
  std::vector<Envelope<Record>> envelopes;
  int closed = 0;
};

template <class Out>
class Keeper final : public Service<Envelope<Record>, Out> {
 public:
  explicit Keeper(Seen& seen) : seen_(seen) {}
  void on_read(Envelope<Record>&& envelope) override { seen_.envelopes.push_back(std::move(envelope)); }
  void on_inactive(std::error_code) override { ++seen_.closed; }

 private:
  Seen& seen_;
};

class Echo final : public Service<Envelope<Record>> {
 public:
  void on_read(Envelope<Record>&& envelope) override { write(std::move(envelope)); }
};

/// `last` takes what `in` reads; what it writes, `out` writes.
template <class In, class Out, class Last>
Status make_pipeline(Channel& channel, In in, Out out, std::unique_ptr<Last> last) {
  LengthPrefixOptions framing;
  framing.max_frame_bytes = kMostBytes;
  MarshalCodecOptions marshalling;
  marshalling.max_message_bytes = kMostBytes;
  return channel.pipeline().append(
      std::make_unique<LengthPrefixCodec>(framing),
      std::make_unique<MarshalCodec<In, Out>>(std::move(in), std::move(out), marshalling), std::move(last));
}

/// A server that sends everything back, or that keeps it, and a client, on one loop.
struct Pair {
  enum class Peer { echoes, keeps, rests };

  Pair(EventLoop& loop_in, Peer peer) : loop(loop_in) {
    ServerOptions options;
    options.endpoint =
        Endpoint::parse(loop.engine().name() == "sim" ? "10.0.0.1:700" : "127.0.0.1:0").value_or_throw();
    options.channel.auto_read = peer != Peer::rests;
    options.initializer = [this, peer](Channel& channel) {
      accepted = channel.ref();
      if (peer == Peer::echoes) {
        return make_pipeline(channel, records({"data", "extras"}), records({"data", "extras"}),
                             std::make_unique<Echo>());
      }
      return make_pipeline(channel, records({"data", "extras"}), records({}),
                           std::make_unique<Keeper<Envelope<Record>>>(there));
    };
    server.emplace(Server::start(loop, std::move(options)).value_or_throw());
  }

  /// A client that writes with `out`.
  template <class Out>
  ChannelRef connect(Out out) {
    const Client client(loop, [this, out](Channel& channel) {
      return make_pipeline(channel, records({"data", "extras"}), out,
                           std::make_unique<Keeper<typename Out::Message>>(here));
    });
    bool connected = false;
    ChannelRef channel = client.connect(server->local_endpoint(), [&](std::error_code error) {
      CHECK_FALSE(error);
      connected = true;
    });
    run_until(loop, [&] { return connected && accepted.post([](Channel&) {}); });
    return channel;
  }

  void finish(const ChannelRef& channel) {
    channel.abort();
    server->stop(Duration::zero());
    run_until(loop, [&] { return server->connections() == 0 && here.closed == 1; });
    settle(loop);
  }

  EventLoop& loop;
  Seen here;
  Seen there;
  ChannelRef accepted;
  std::optional<Server> server;
};

/// Memory that is freed when the last slice of it is released, so that a later look at it shows.
struct Lent {
  Chain chain_of(std::size_t bytes, char c) {
    auto memory = std::make_unique<std::string>(bytes, c);
    const auto view = std::as_bytes(std::span(*memory));
    ++lent;
    return Chain(Slice::borrow(view, [this, kept = std::move(memory)]() mutable {
      kept.reset();
      ++released;
    }));
  }
  int lent = 0;
  int released = 0;
};

std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  std::uint32_t state = 1;
  for (char& c : text) c = static_cast<char>((state = state * 1'664'525 + 1'013'904'223) >> 24);
  return text;
}

}  // namespace

TEST_CASE("100 MiB go out and in and are sent on without a copy, as payload and as a string of the message") {
  const std::string data = pattern(std::size_t{100} << 20);
  EventLoopOptions options;
  options.pool.budget_bytes = std::size_t{512} << 20;
  const auto go_out_and_in = [&](EventLoop& loop) {
    for (const bool is_payload : {true, false}) {
      CAPTURE(is_payload);
      Pair pair(loop, Pair::Peer::echoes);
      const ChannelRef channel =
          pair.connect(records(is_payload ? std::vector<std::string>{"data"} : std::vector<std::string>{}));
      Envelope<Record> envelope;
      envelope.message.set_name("large");
      if (is_payload) {
        envelope.message.set_data(envelope.payloads.add(Chain(Slice::immortal(std::string_view(data)))));
      } else {
        envelope.message.add_extras(data);
      }
      const CopyScope scope;
      channel.write(std::move(envelope));
      run_until(loop, [&] { return !pair.here.envelopes.empty(); });
      const CopyCounts copied = scope.copied();
      // Pieces that are small for the block they came in, or for a reference, when they are sent on.
      const std::uint64_t small = copied[CopyPlace::receive] + copied[CopyPlace::below_threshold];
      CHECK(copied.total() == small);
      CHECK(small < 64 * 1024);
      Envelope<Record>& back = pair.here.envelopes.front();
      CHECK(back.message.name() == "large");
      const Chain payload = back.payloads.take(is_payload ? back.message.data() : back.message.extras(0));
      CHECK((payload == data));
      pair.finish(channel);
    }
    stop(loop);
  };
  on_every_kernel_loop(go_out_and_in, options);
}

TEST_CASE("a message may go right after it was written: what it references lives until it is sent") {
  on_every_own_loop([](EventLoop& loop) {
    const std::string expected(3'000'000, 'e');
    Pair pair(loop, Pair::Peer::keeps);
    const ChannelRef channel = pair.connect(SharedRecords());
    std::weak_ptr<const Record> alive;
    bool sent = false;
    {
      auto record = std::make_shared<Record>();
      record->add_extras(expected);
      record->set_data("small");
      alive = record;
      channel.write(std::shared_ptr<const Record>(std::move(record)), [&](std::error_code error) {
        CHECK_FALSE(error);
        sent = true;
      });
    }
    CHECK_FALSE(alive.expired());
    run_until(loop, [&] { return sent && !pair.there.envelopes.empty(); });
    settle(loop);
    CHECK(alive.expired());
    Envelope<Record>& received = pair.there.envelopes.front();
    CHECK((received.payloads.take(received.message.extras(0)) == expected));
    pair.finish(channel);
    stop(loop);
  });
}

TEST_CASE("what a message references is released once when its connection ends in the middle of it") {
  enum class End { aborted, closed_by_peer, loop_stopped };
  for (const End end : {End::aborted, End::closed_by_peer, End::loop_stopped}) {
    CAPTURE(static_cast<int>(end));
    on_every_own_loop([end](EventLoop& loop) {
      Lent lent;
      std::vector<std::error_code> results;
      {
        Pair payloads(loop, Pair::Peer::rests);
        const ChannelRef channel = payloads.connect(records({"data", "extras"}));
        Envelope<Record> envelope;
        envelope.message.set_data(envelope.payloads.add(lent.chain_of(32'000'000, 'd')));
        envelope.message.add_extras(envelope.payloads.add(lent.chain_of(3'000, 'e')));
        channel.write(std::move(envelope), [&](std::error_code error) { results.push_back(error); });
        settle(loop, 200);  // the kernel has its part
        CHECK(results.empty());
        CHECK(lent.released < lent.lent);
        if (end == End::aborted) channel.abort();
        if (end == End::closed_by_peer) payloads.accepted.abort();
        if (end == End::loop_stopped) stop(loop);
        if (end != End::loop_stopped) payloads.finish(channel);
        CHECK(results.size() == 1);
        CHECK(results.front());
      }
      CHECK(lent.released == lent.lent);
      stop(loop);
    });
  }
}

TEST_CASE("a shared message is let go when its connection ends in the middle of it") {
  on_every_own_loop([](EventLoop& loop) {
    Pair pair(loop, Pair::Peer::rests);
    const ChannelRef channel = pair.connect(SharedRecords());
    auto record = std::make_shared<Record>();
    record->add_extras(std::string(32'000'000, 'e'));
    record->mutable_meta()->set_checksum(std::string(5000, 'c'));
    const std::weak_ptr<const Record> alive = record;
    channel.write(std::shared_ptr<const Record>(std::move(record)));
    settle(loop, 200);
    CHECK_FALSE(alive.expired());
    pair.finish(channel);
    CHECK(alive.expired());
    stop(loop);
  });
}

TEST_CASE("a write that is cancelled lets go of its message, and nothing of it is sent") {
  on_every_own_loop([](EventLoop& loop) {
    Pair pair(loop, Pair::Peer::keeps);
    const ChannelRef channel = pair.connect(records({"data"}));
    Lent lent;
    std::error_code result;
    Envelope<Record> cancelled;
    cancelled.message.set_data(cancelled.payloads.add(lent.chain_of(100'000, 'd')));
    const WriteToken token =
        channel.write_cancellable(std::move(cancelled), [&](std::error_code error) { result = error; });
    CHECK(token.cancel());
    Envelope<Record> next;
    next.message.set_name("next");
    channel.write(std::move(next));
    run_until(loop, [&] { return !pair.there.envelopes.empty() && result; });
    CHECK(result == errc::cancelled);
    CHECK(lent.released == 1);
    CHECK(pair.there.envelopes.front().message.name() == "next");
    pair.finish(channel);
    stop(loop);
  });
}
