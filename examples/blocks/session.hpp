// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Session: one connection of the block server, the last handler of its pipeline. It lives on the connection's
// loop; what touches the disk runs on the file thread, which reaches the session only through posts to its
// channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "block_store.hpp"
#include "blocks.pb.h"
#include "file_thread.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/marshal/protobuf.hpp"

namespace linkspan::blocks {

/// What all sessions of a server share; outlives them.
struct SessionContext {
  BlockStore& store;  // used on the file thread only
  FileThread& files;
  std::size_t chunk_bytes;
  bool checksum;
};

class Session final : public Service<Envelope<Request>, Envelope<Reply>> {
 public:
  explicit Session(const SessionContext& context) : context_(context) {}

  void on_active() override;
  void on_read(Envelope<Request>&& request) override;
  void on_read_end() override;
  void on_drain(Duration deadline) override;
  void on_inactive(std::error_code error) override;

 private:
  // An operation lives until its reply has been written. The file thread's part is shared with its tasks.
  struct PutFile {
    std::unique_ptr<PendingBlock> block;
    std::size_t unreported_bytes = 0;  // written, and the loop has not been told
    bool failed = false;
  };
  struct Put {
    std::shared_ptr<PutFile> file;
    std::size_t unwritten_bytes = 0;  // handed to the file thread
    bool paused = false;
    bool failed = false;  // the failure was sent; the rest of the put is dropped
  };
  struct GetFile {
    std::unique_ptr<StoredBlock> block;
  };
  struct Get {
    std::shared_ptr<GetFile> file;
    std::uint64_t size_bytes = 0;
    std::uint64_t next_offset = 0;      // of the chunk to prepare next
    std::uint64_t in_flight_bytes = 0;  // asked for and not yet taken by the kernel
  };

  void begin_put(const BeginPut& request);
  void put_chunk(Chain&& bytes);
  void finish_put(const FinishPut& request);
  void bytes_written(std::size_t bytes);
  void begin_get(const linkspan::blocks::Get& request);
  void block_opened(std::uint64_t size_bytes, std::optional<std::uint32_t> crc32);
  void prepare_chunks();
  void chunk_prepared(Slice&& bytes);
  void open(const Open& request);
  void pass_file(std::uint64_t size_bytes, std::optional<std::uint32_t> crc32, Socket&& descriptor);
  void remove(const Remove& request);
  void list(const List& request);
  void send_copy_counts();

  void reply(Reply&& message) { write({std::move(message)}); }
  void reply_failure(const Error& error);
  void put_failed(const Error& error);
  void operation_done();
  void refuse(const std::string& why);

  const SessionContext& context_;
  ChannelRef self_;
  std::string name_;  // of the block, for messages
  std::optional<Put> put_;
  std::optional<Get> get_;
  bool busy_ = false;  // an operation runs
  bool close_when_idle_ = false;
};

}  // namespace linkspan::blocks
