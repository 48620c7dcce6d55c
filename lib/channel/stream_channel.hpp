// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// StreamChannel: the channel over a Stream that Server and Client make. Owns itself: it is deleted at the end
// of the tick in which its stream has closed, or in which connecting has failed.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "lib/transport/peer_address.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/base/ring_queue.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/client.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/resolution.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/stream.hpp"

namespace linkspan {

/// Told when a channel of its is gone; on the channel's loop.
class ChannelOwner {
 public:
  virtual ~ChannelOwner() = default;
  virtual void channel_gone() noexcept = 0;
};

class StreamChannel final : public Channel, public StreamHandler, public ListNode<StreamChannel> {
 public:
  /// Over an accepted connection.
  static StreamChannel& open(EventLoop& loop, Socket socket, const ChannelOptions& options,
                             const ChannelInitializer& initializer, std::shared_ptr<ChannelOwner> owner);

  struct ConnectSetup {
    std::optional<std::string> name;  // that the endpoints are still to be found for
    std::vector<Endpoint> endpoints;  // unless there is a name
    ChannelOptions options;
    ChannelInitializer initializer;
    ConnectDone done;
    std::shared_ptr<detail::ChannelState> state;
  };
  static void connect(EventLoop& loop, ConnectSetup setup);

  [[nodiscard]] Endpoint local_endpoint() const override;
  [[nodiscard]] Endpoint peer_endpoint() const override;

 private:
  struct Connecting {
    ConnectSetup setup;
    std::unique_ptr<Resolution> resolution;  // while there is no stream
    bool given_up = false;                   // closed or aborted meanwhile
    std::optional<Timer> close_deadline;     // close() is to follow the queued writes, until then
    TimePoint close_at;
    bool late = false;  // it has passed

    // Written meanwhile; the attempts do not see it.
    struct Write {
      std::variant<Chain, FileRange, WithDescriptors> what;
      WriteDone done;
    };
    void queue(Write write, std::size_t size);
    std::vector<Write> writes;
    std::size_t bytes = 0;
    bool shut_down = false;  // no writes after these
  };

  StreamChannel(EventLoop& loop, const ChannelOptions& options);
  ~StreamChannel() override = default;

  void send(Chain&& bytes) override;
  void send_marker(WriteDone&& done, std::uint64_t begin) override;
  void send_range(FileRange&& range, WriteDone done) override;
  void send_descriptors(WithDescriptors&& message, WriteDone done) override;
  void do_receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) override;
  void do_flush() override;
  void do_shutdown_write() override;
  void do_close(Duration deadline) override;
  void do_abort() override;
  void do_read(bool wanted) override;
  [[nodiscard]] std::size_t unsent_bytes() const noexcept override;
  [[nodiscard]] std::uint64_t total_sent() const noexcept override {
    return stream_ ? stream_.sent_bytes() : 0;
  }
  void destroy() noexcept override;

  void on_open() override;
  void on_read(Chain&& data) override { report_read(std::move(data)); }
  void on_descriptors(std::vector<Socket>&& descriptors) override {
    report_descriptors(std::move(descriptors));
  }
  void on_end() override { report_end(); }
  void on_write_progress(std::size_t) override { report_progress(); }
  void on_write_closed(std::error_code error) override { report_write_closed(error); }
  void on_closed(std::error_code error, Chain&& unsent) override;

  void resolve();
  void connect_to(std::span<const Endpoint> endpoints);
  void stream_write(Chain&& bytes, WriteDone done);
  void stream_write(FileRange&& range, WriteDone done);
  void stream_write(WithDescriptors&& message, WriteDone done);

  Stream stream_;
  RingQueue<WriteDone> markers_;            // in the order of the stream's empty writes that complete them
  PeerAddress peer_;                        // for when the stream is gone
  std::unique_ptr<Connecting> connecting_;  // until the connection is there
  std::shared_ptr<ChannelOwner> owner_;
};

}  // namespace linkspan
