// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a client does on a connection: each operation is the last handler of a pipeline of its own. It reports
// one result, whatever happens, to the thread that waits for it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "blocks.pb.h"
#include "client.hpp"
#include "file_sink.hpp"
#include "file_thread.hpp"
#include "linkspan/channel/buffered_writer.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/loop/files.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/marshal/protobuf.hpp"
#include "local_blocks.hpp"

namespace linkspan::blocks {

/// The result of an operation, set by whoever is first: the operation, or the connection that never came.
template <class T>
class Outcome {
 public:
  void set(Result<T> result) {
    if (std::exchange(set_, true)) return;
    promise_.set_value(std::move(result));
  }
  [[nodiscard]] Result<T> wait() { return promise_.get_future().get(); }

 private:
  bool set_ = false;  // on the loop's thread
  std::promise<Result<T>> promise_;
};

struct OperationContext {
  const BlockClientOptions& options;
  FileThread& files;
};

/// Fails when the connection does, when the server says so, and when nothing moves for too long.
template <class T>
class Operation : public Service<Envelope<Reply>, Envelope<Request>> {
 public:
  using Value = T;

  Operation(const OperationContext& context, std::shared_ptr<Outcome<T>> outcome)
      : context_(context), outcome_(std::move(outcome)) {}

  void on_active() override {
    self_ = channel().ref();
    timer_.emplace(channel().loop(),
                   [this] { finish(Error(errc::timed_out, "the server has not moved for too long")); });
    progress();
    start();
  }

  void on_read(Envelope<Reply>&& reply) override {
    progress();
    if (reply.message.has_failure()) {
      finish(Error(errc::unavailable, "the server says: " + reply.message.failure().reason()));
    } else {
      take(std::move(reply));
    }
  }

  void on_read_end() override { finish(Error(errc::truncated, "the server ended the connection")); }
  void on_error(std::error_code error, std::string_view detail) override {
    finish(Error(error, std::string(detail)));
  }
  void on_inactive(std::error_code error) override {
    if (!result_) {
      const std::string why = error ? error.message() : "closed by the server";
      result_.emplace(Error(errc::connection_lost, "the connection ended: " + why));
      timer_.reset();
      release();
    }
    outcome_->set(std::move(*result_));
  }

 protected:
  virtual void start() = 0;
  virtual void take(Envelope<Reply>&& reply) = 0;
  /// The result is known: lets go of what the operation holds.
  virtual void release() {}

  void send(Request&& message, Chain&& payload = Chain(), WriteDone done = nullptr) {
    Envelope<Request> envelope{std::move(message)};
    envelope.message.set_payload(envelope.payloads.add(std::move(payload)));
    write(std::move(envelope), std::move(done));
  }
  void progress() {
    if (timer_) timer_->start(context_.options.progress_timeout);
  }
  /// Closes; the result is reported when that is done, so that nobody cuts the connection off meanwhile.
  void finish(Result<T> result) {
    if (result_) return;
    result_.emplace(std::move(result));
    timer_.reset();
    release();
    if (*result_) {
      channel().close();
    } else {
      channel().abort();
    }
  }
  void unexpected() { finish(Error(errc::malformed, "the server sent a reply that cannot stand here")); }
  [[nodiscard]] bool finished() const { return result_.has_value(); }
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

  const OperationContext context_;
  ChannelRef self_;

 private:
  std::shared_ptr<Outcome<T>> outcome_;
  std::optional<Timer> timer_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::optional<Result<T>> result_;
};

/// Reads a file on the file thread, ahead of the network by a window, and writes it to a BufferedWriter,
/// which refers to what was read.
class PutOperation final : public Operation<Transfer> {
 public:
  PutOperation(const OperationContext& context, std::shared_ptr<Outcome<Transfer>> outcome, std::string path,
               std::string name)
      : Operation(context, std::move(outcome)), path_(std::move(path)), name_(std::move(name)) {}

 private:
  // The file thread's part.
  struct Source {
    std::unique_ptr<File> file;
    std::uint32_t crc32 = 0;
  };

  void start() override;
  void take(Envelope<Reply>&& reply) override;
  void release() override;
  void file_opened(std::uint64_t size_bytes);
  void read_chunks();
  void chunk_read(Slice&& bytes);
  void send_chunk(Chunk&& chunk, WriteDone done);
  void end_of_file();
  void send_finish();

  std::string path_;
  std::string name_;
  std::shared_ptr<Source> source_ = std::make_shared<Source>();
  std::uint64_t size_bytes_ = 0;
  std::uint64_t next_offset_ = 0;
  std::uint64_t in_flight_bytes_ = 0;  // asked for and not yet taken by the kernel
  std::uint64_t read_bytes_ = 0;
  std::optional<std::uint32_t> crc32_;
  std::optional<BufferedWriter> writer_;
};

/// Writes what arrives to a file on the file thread, or only checks it.
class GetOperation final : public Operation<Transfer> {
 public:
  GetOperation(const OperationContext& context, std::shared_ptr<Outcome<Transfer>> outcome, std::string name,
               std::optional<std::string> path)
      : Operation(context, std::move(outcome)), name_(std::move(name)), path_(std::move(path)) {}

 private:
  void start() override;
  void take(Envelope<Reply>&& reply) override;
  void release() override;
  void take_chunk(Chain&& bytes);
  void bytes_written(std::size_t bytes);
  void commit();

  std::string name_;
  std::optional<std::string> path_;
  std::shared_ptr<FileSink> sink_ = std::make_shared<FileSink>();  // the file thread's part
  bool announced_ = false;                                         // BlockInfo has come
  std::uint64_t size_bytes_ = 0;
  std::optional<std::uint32_t> crc32_;
  std::uint64_t received_bytes_ = 0;
  std::uint64_t unwritten_bytes_ = 0;  // handed to the file thread
  bool paused_ = false;
};

class RemoveOperation final : public Operation<std::monostate> {
 public:
  RemoveOperation(const OperationContext& context, std::shared_ptr<Outcome<std::monostate>> outcome,
                  std::string name)
      : Operation(context, std::move(outcome)), name_(std::move(name)) {}

 private:
  void start() override {
    Request request;
    request.mutable_remove()->set_name(name_);
    send(std::move(request));
  }
  void take(Envelope<Reply>&& reply) override {
    if (!reply.message.has_done()) return unexpected();
    finish(std::monostate());
  }

  std::string name_;
};

class OpenOperation final : public Operation<OpenedBlock> {
 public:
  OpenOperation(const OperationContext& context, std::shared_ptr<Outcome<OpenedBlock>> outcome,
                std::string name)
      : Operation(context, std::move(outcome)), name_(std::move(name)) {}

  // They come before the reply that they travel with.
  void on_descriptors(std::vector<Socket>&& descriptors) override { descriptors_ = std::move(descriptors); }

 private:
  void start() override {
    Request request;
    request.mutable_open()->set_name(name_);
    request.mutable_open()->set_without_checksum(!context_.options.checksum);
    send(std::move(request));
  }
  void take(Envelope<Reply>&& reply) override {
    if (!reply.message.has_block() || descriptors_.size() != 1) return unexpected();
    const BlockInfo& block = reply.message.block();
    OpenedBlock opened{std::move(descriptors_.front()), block.size_bytes(), std::nullopt};
    if (block.has_crc32() && context_.options.checksum) opened.crc32 = block.crc32();
    finish(std::move(opened));
  }

  std::string name_;
  std::vector<Socket> descriptors_;
};

/// All names, reply by reply.
class ListOperation final : public Operation<std::vector<std::string>> {
 public:
  using Operation::Operation;

 private:
  void start() override { ask(""); }
  void take(Envelope<Reply>&& reply) override {
    if (!reply.message.has_names()) return unexpected();
    const Names& names = reply.message.names();
    names_.insert(names_.end(), names.name().begin(), names.name().end());
    if (!names.more()) return finish(std::move(names_));
    if (names.name_size() == 0) return unexpected();
    ask(names_.back());
  }
  void ask(const std::string& after) {
    Request request;
    request.mutable_list()->set_after(after);
    send(std::move(request));
  }

  std::vector<std::string> names_;
};

class CopyCountsOperation final : public Operation<ServerCopyCounts> {
 public:
  using Operation::Operation;

 private:
  void start() override {
    Request request;
    request.mutable_get_copy_counts();
    send(std::move(request));
  }
  void take(Envelope<Reply>&& reply) override {
    if (!reply.message.has_copy_counts()) return unexpected();
    finish(reply.message.copy_counts());
  }
};

}  // namespace linkspan::blocks
