// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Random calls in random callbacks of many streams, chosen by a seed: whatever happens, every completion and
// release comes exactly once, in order, and on_closed last.
#include <random>

#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

struct Party {
  Recorder events;
  WriteLog writes;
  Stream stream;
  int pauses = 1;
  int borrowed = 0;
  int released = 0;
  int given = 0;
  int given_back = 0;
  int closed_early = 0;  // on_closed before something that it has to wait for
};

class Chaos {
 public:
  Chaos(World& world, unsigned seed) : world_(world), random_(seed), memory_(pattern(200'000)) {}

  void add(Socket socket) {
    Party& party = parties_.emplace_back();
    party.events.keeps_data = true;
    party.events.during = [this, &party](Event event) {
      party.events.kept.clear();
      if (event == Event::closed &&
          (party.writes.entries.size() != static_cast<std::size_t>(party.writes.issued()) ||
           party.given != party.given_back)) {
        ++party.closed_early;
      }
      if (event != Event::closed && below(3) == 0) act(party);
    };
    party.writes.during = [this, &party](const WriteLog::Entry&) { maybe(party); };
    StreamOptions options;
    options.linger = std::chrono::milliseconds(5);
    party.stream = world_.transport().open(std::move(socket), options, party.events);
  }

  void run() {
    for (Party& party : parties_) {  // before on_open
      for (int call = 0; call < 4; ++call) act(party);
    }
    for (int step = 0; step < 60; ++step) {
      act(parties_[below(parties_.size())]);
      world_.turn(Duration::zero());
    }
    for (Party& party : parties_) {
      if (party.stream) party.stream.abort();
    }
    calm_ = true;
    world_.run_until([&] {
      return std::ranges::all_of(parties_, [](const Party& p) {
        return !p.stream && p.writes.complete_and_in_order() && p.borrowed == p.released &&
               p.given == p.given_back;
      });
    });
    world_.settle();
    for (const Party& p : parties_) {
      CHECK(p.events.count(Event::closed) <= 1);
      if (p.events.closed()) CHECK(p.events.events.back() == Event::closed);
      if (!p.events.events.empty() && p.events.events[0] != Event::closed)
        CHECK(p.events.events[0] == Event::open);
      CHECK(p.writes.complete_and_in_order());
      CHECK(p.borrowed == p.released);
      CHECK(p.given == p.given_back);
      CHECK(p.closed_early == 0);
      CHECK(p.events.calls_inside_calls == 0);
    }
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  void maybe(Party& party) {
    if (!calm_ && below(4) == 0) act(party);
  }
  void act(Party& party) {
    if (!party.stream || calm_) return;
    party.events.inside_call = true;
    Stream& stream = party.stream;
    switch (below(24)) {
      case 0: stream.abort(); break;
      case 1: stream.close(std::chrono::milliseconds(below(3) * 5)); break;
      case 2: stream.shutdown_write(); break;
      case 3: stream = Stream(); break;
      case 4:
      case 5: stream.flush(); break;
      case 6:
      case 7:
        stream.pause_read();
        ++party.pauses;
        break;
      case 8:
      case 9:
      case 10:
      case 11:
        if (party.pauses != 0) {
          --party.pauses;
          stream.start_read();
        }
        break;
      case 12:
      case 13: {
        const std::size_t size = below(3) == 0 ? 0 : below(30'000);
        ++party.given;
        stream.receive_into(
            Block::adopt(std::as_writable_bytes(std::span(into_.emplace_back(30'000, '.'))), [] {}), size,
            [this, &party](std::error_code, Block&&, std::size_t) {
              ++party.given_back;
              maybe(party);
            });
        break;
      }
      case 14: stream.write(Chain(), party.writes.next()); break;
      case 15:
      case 16:
      case 17: {
        ++party.borrowed;
        stream.write(Chain(
            Slice::borrow(std::as_bytes(std::span(memory_)).first(1 + below(memory_.size())), [this, &party] {
              ++party.released;
              maybe(party);
            })));
        break;
      }
      default:
        stream.write(in_slices(std::string_view(memory_).substr(0, below(20'000)), 1'000),
                     party.writes.next());
    }
    party.events.inside_call = false;
  }

  World& world_;
  std::mt19937 random_;
  const std::string memory_;
  std::deque<Party> parties_;
  std::deque<std::string> into_;
  bool calm_ = false;
};

}  // namespace

TEST_CASE("random calls in random callbacks: everything completes once, in order, and on_closed is last") {
  for_each_mode([](World& world) {
    const Socket listener = world.raw_listener(64);
    for (unsigned seed = 0; seed < 5; ++seed) {
      CAPTURE(seed);
      Chaos chaos(world, seed);
      for (int pair = 0; pair < 4; ++pair) {
        chaos.add(world.raw_connect(local_endpoint(listener)));
        chaos.add(world.raw_accept(listener));
      }
      chaos.run();
    }
  });
}

}  // namespace linkspan::conformance
