// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a message pays for the handlers on its way: from the one at the wire's end to the one at the
// application's, or back, with others in between. One that `passes` overrides on_read and on_write and hands
// on; one that stands `aside` overrides neither. The ends only look at the message, which is not moved, as
// moving it is no handler's. The floor is a virtual call for each.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "perf/support/rounds.hpp"

namespace linkspan::perf {
namespace {

class Passing final : public Handler<Chain, Chain, Chain, Chain> {
 public:
  void on_read(Chain&& message) override { pass(std::move(message)); }
  void on_write(Chain&& message) override { write(std::move(message)); }
};

class Aside final : public Handler<Chain, Chain, Chain, Chain> {};

class Wire final : public Handler<Chain, Chain, Chain, Chain> {
 public:
  void on_write(Chain&& message) override { arrived = &message; }
  void receive(Chain&& message) { pass(std::move(message)); }

  const Chain* arrived = nullptr;
};

class Application final : public Service<Chain> {
 public:
  void on_read(Chain&& message) override { arrived = &message; }
  void send(Chain&& message) { write(std::move(message)); }

  const Chain* arrived = nullptr;
};

template <class Between>
class Pipelined {
 public:
  explicit Pipelined(int handlers) {
    append(std::move(wire_));
    for (int i = 0; i < handlers; ++i) append(std::make_unique<Between>());
    append(std::move(application_));
    channel_.open();
  }

  const Chain* inbound(Chain&& message) {
    to_wire_.receive(std::move(message));
    return to_application_.arrived;
  }
  const Chain* outbound(Chain&& message) {
    to_application_.send(std::move(message));
    return to_wire_.arrived;
  }

 private:
  template <class H>
  void append(std::unique_ptr<H> handler) {
    channel_.pipeline().append(std::move(handler)).value_or_throw();
  }

  std::unique_ptr<Wire> wire_ = std::make_unique<Wire>();
  std::unique_ptr<Application> application_ = std::make_unique<Application>();
  Wire& to_wire_ = *wire_;
  Application& to_application_ = *application_;
  EmbeddedChannel channel_;
};

struct Stage {
  virtual ~Stage() = default;
  virtual void take(Chain&& message) = 0;
};
struct Next final : Stage {
  explicit Next(Stage& next_in) : next(next_in) {}
  void take(Chain&& message) override { next.take(std::move(message)); }
  Stage& next;
};
struct Last final : Stage {
  void take(Chain&& message) override { arrived = &message; }
  const Chain* arrived = nullptr;
};

class VirtualCalls {
 public:
  explicit VirtualCalls(int handlers) {
    for (int i = 0; i < handlers; ++i) {
      stages_.push_back(std::make_unique<Next>(*first_));
      first_ = stages_.back().get();
    }
  }

  const Chain* inbound(Chain&& message) {
    first_->take(std::move(message));
    return last_.arrived;
  }
  const Chain* outbound(Chain&& message) { return inbound(std::move(message)); }

 private:
  Last last_;
  Stage* first_ = &last_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

template <class Way>
void add_all(const std::string& variant) {
  for (const bool inbound : {true, false}) {
    for (const int handlers : {0, 1, 4, 16}) {
      const auto run = [inbound, handlers](benchmark::State& state) {
        Way way(handlers);
        Chain message(Slice::copy(std::string(64, 'x')));
        for (auto _ : state) {
          const Chain* arrived = inbound ? way.inbound(std::move(message)) : way.outbound(std::move(message));
          if (arrived != &message) state.SkipWithError("the message has not arrived");
        }
      };
      add({.variant = variant,
           .parameters = {{"direction", inbound ? "in" : "out"}, {"handlers", handlers}},
           .run = run,
           .quick = handlers == 0 || handlers == 4,
           .instructions = true});
    }
  }
}

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  add_all<Pipelined<Passing>>("linkspan");
  add_all<Pipelined<Aside>>("linkspan, aside");
  add_all<VirtualCalls>("virtual calls");
  return run(argc, argv);
}
