// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Requests: the last handler of a client's channel. It numbers requests, matches answers to them by that
// number, in whatever order they come, and ends each within its deadline.
//
//   struct Ids {  // where the number is in the program's messages
//     static void set(Question& question, std::uint64_t id) { question.id = id; }
//     static std::uint64_t get(const Answer& answer) { return answer.id; }
//   };
//   using Questions = Requests<Question, Answer, Ids>;
//
// Not for: protocols whose answers come in the order of the requests without numbers, and streams of answers.
// Cost: a request costs an allocation for what is kept of it, and a look-up when it is answered.
// Threads: the channel's loop; other threads post to it (ChannelRef::post), and find it in the pipeline
// (Pipeline::find).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/counter.hpp"
#include "linkspan/base/error.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/handler.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {

struct RequestOptions {
  std::size_t max_in_flight = 1024;              ///< a further request fails with errc::limit_exceeded
  Duration deadline = std::chrono::seconds(30);  ///< of requests that are not given another one

  RequestOptions() = default;
};

/// Readable on any thread.
struct RequestCounters {
  Counter requests;   ///< that were sent
  Counter answered;   ///< of these
  Counter failed;     ///< timed out, cancelled, or lost with their channel
  Counter refused;    ///< never sent
  Counter unmatched;  ///< answers to no request that is in flight; dropped
};

template <class Request, class Response, class Ids>
class Requests final : public Service<Response, Request> {
 public:
  /// Called once, never inside a call of this class: with the answer and no error; or with nullptr and
  /// errc::timed_out, errc::cancelled, errc::limit_exceeded, errc::shut_down (after on_drain, or when the
  /// channel closes), or what ended the channel (errc::connection_lost when the peer ended it in order).
  using Done = unique_function<void(std::error_code error, Response* response)>;

  explicit Requests(const RequestOptions& options = {}) : options_(options) {}
  ~Requests() override { fail_all(make_error_code(errc::cancelled)); }

  /// Sends `request` with a number of its own, which is returned.
  std::uint64_t call(Request&& request, Done done) {
    return call(std::move(request), options_.deadline, std::move(done));
  }
  std::uint64_t call(Request&& request, Duration deadline, Done done) {
    const std::uint64_t id = ++last_id_;
    if (const std::error_code refusal = refuses()) {
      counters_.refused.add(1);
      finish_later(std::move(done), refusal);
      return id;
    }
    auto call = std::make_unique<Call>(*this, id, std::move(done));
    call->deadline.start(deadline);
    calls_.emplace(id, std::move(call));
    counters_.requests.add(1);
    Ids::set(request, id);
    this->write(std::move(request));
    return id;
  }
  /// Its completion says errc::cancelled, and its answer will be dropped. False when it is not in flight.
  bool cancel(std::uint64_t id) {
    const auto found = calls_.find(id);
    if (found == calls_.end()) return false;
    counters_.failed.add(1);
    finish_later(std::move(found->second->done), make_error_code(errc::cancelled));
    forget(found);
    return true;
  }

  [[nodiscard]] std::size_t in_flight() const noexcept { return calls_.size(); }
  [[nodiscard]] const RequestCounters& counters() const noexcept { return counters_; }

  void on_read(Response&& response) override {
    const auto found = calls_.find(Ids::get(response));
    if (found == calls_.end()) {
      counters_.unmatched.add(1);
      return;
    }
    counters_.answered.add(1);
    Done done = std::move(found->second->done);
    forget(found);
    if (done) done({}, &response);
  }
  /// Nobody will answer any more.
  void on_read_end() override {
    over_ = true;
    fail_all(connection_lost(0));
    this->pass_read_end();
  }
  /// Takes no more requests; closes when those in flight are over.
  void on_drain(Duration deadline) override {
    draining_ = true;
    drain_deadline_ = deadline;
    close_if_drained();
  }
  void on_inactive(std::error_code error) override {
    over_ = true;
    fail_all(error ? error : connection_lost(0));
  }
  void on_removed() override {
    over_ = true;
    fail_all(make_error_code(errc::cancelled));
  }

 private:
  struct Call {
    Call(Requests& requests, std::uint64_t id, Done done_in)
        : done(std::move(done_in)),
          deadline(requests.channel().loop(), [&requests, id] { requests.timed_out(id); }) {}
    Done done;
    Timer deadline;
  };
  using Calls = std::unordered_map<std::uint64_t, std::unique_ptr<Call>>;

  [[nodiscard]] std::error_code refuses() const {
    if (over_ || draining_ || this->channel().ended()) return make_error_code(errc::shut_down);
    if (calls_.size() >= options_.max_in_flight) return make_error_code(errc::limit_exceeded);
    return {};
  }
  void timed_out(std::uint64_t id) {
    const auto found = calls_.find(id);
    counters_.failed.add(1);
    Done done = std::move(found->second->done);
    forget(found);
    finish(done, make_error_code(errc::timed_out));
  }
  void fail_all(std::error_code error) {
    Calls calls = std::exchange(calls_, {});
    counters_.failed.add(calls.size());
    for (auto& [id, call] : calls) finish(call->done, error);
  }
  void forget(typename Calls::iterator call) {
    calls_.erase(call);
    close_if_drained();
  }
  void close_if_drained() {
    if (draining_ && calls_.empty()) this->channel().close(drain_deadline_);
  }
  void finish(Done& done, std::error_code error) {
    if (done) this->channel().run([&] { done(error, nullptr); });
  }
  void finish_later(Done done, std::error_code error) {
    if (!done) return;
    this->channel().complete_later(
        [done = std::move(done)](std::error_code reason) mutable { done(reason, nullptr); }, error);
  }

  RequestOptions options_;
  RequestCounters counters_;
  Calls calls_;
  std::uint64_t last_id_ = 0;
  Duration drain_deadline_{};
  bool draining_ = false;
  bool over_ = false;
};

}  // namespace linkspan
