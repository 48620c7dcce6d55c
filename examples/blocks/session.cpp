// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "session.hpp"

#include <algorithm>
#include <utility>

#include "limits.hpp"
#include "linkspan/base/log.hpp"
#include "linkspan/buffer/chain_writer.hpp"
#include "linkspan/buffer/copy_ledger.hpp"

namespace linkspan::blocks {

void Session::on_active() {
  self_ = channel().ref();
}

void Session::on_read(Envelope<Request>&& request) {
  const Request& message = request.message;
  if (put_ && message.has_put_chunk()) return put_chunk(request.payloads.take(message.payload()));
  if (put_ && message.has_finish_put()) return finish_put(message.finish_put());
  if (busy_) return refuse("a request came before the one before it was answered");
  switch (message.action_case()) {
    case Request::kBeginPut: return begin_put(message.begin_put());
    case Request::kGet: return begin_get(message.get());
    case Request::kOpen: return open(message.open());
    case Request::kRemove: return remove(message.remove());
    case Request::kList: return list(message.list());
    case Request::kGetCopyCounts: return send_copy_counts();
    default: return refuse("a request that cannot stand here, or that this server does not know");
  }
}

// Work goes to the file thread with what it needs; its results come back as events of the channel, if that is
// still there. `this` is valid in those: a channel that is alive has its handlers.

// --- put -------------------------------------------------------------------------------------------------

void Session::begin_put(const BeginPut& request) {
  busy_ = true;
  name_ = request.name();
  put_ = Put();
  put_->file = std::make_shared<PutFile>();
  context_.files.run([this, self = self_, &store = context_.store, file = put_->file, name = name_,
                      with_checksum = !request.without_checksum()] {
    auto block = store.begin_put(name, with_checksum);
    if (block) {
      file->block = std::move(block).value();
      return;
    }
    file->failed = true;
    static_cast<void>(self.post([this, error = block.error()](Channel&) { put_failed(error); }));
  });
}

void Session::put_chunk(Chain&& bytes) {
  if (put_->failed) return;
  const std::size_t size = bytes.size();
  put_->unwritten_bytes += size;
  if (!put_->paused && put_->unwritten_bytes > kFileWindowBytes) {
    put_->paused = true;
    channel().pause_read();
  }
  context_.files.run([this, self = self_, file = put_->file, chunk = std::move(bytes), size]() mutable {
    if (!file->failed) {
      if (Status written = file->block->append(chunk); !written) {
        file->failed = true;
        file->block.reset();
        static_cast<void>(self.post([this, error = written.error()](Channel&) { put_failed(error); }));
      }
    }
    chunk.clear();  // back to the loop's pool before the loop hears of it
    file->unreported_bytes += size;
    if (file->unreported_bytes < kReportBytes) return;
    const std::size_t written_bytes = std::exchange(file->unreported_bytes, 0);
    static_cast<void>(self.post([this, written_bytes](Channel&) { bytes_written(written_bytes); }));
  });
}

void Session::bytes_written(std::size_t bytes) {
  if (!put_) return;
  put_->unwritten_bytes -= bytes;
  if (put_->paused && put_->unwritten_bytes <= kFileWindowBytes / 2) {
    put_->paused = false;
    channel().resume_read();
  }
}

void Session::put_failed(const Error& error) {
  if (!put_ || put_->failed) return;
  put_->failed = true;
  reply_failure(error);
}

void Session::finish_put(const FinishPut& request) {
  std::optional<std::uint32_t> crc32;
  if (request.has_crc32()) crc32 = request.crc32();
  context_.files.run([this, self = self_, file = put_->file, size = request.size_bytes(), crc32] {
    Status committed = Error(errc::cancelled, "the put has failed");  // and the client has been told why
    if (!file->failed) committed = file->block->commit(size, crc32);
    file->block.reset();
    static_cast<void>(self.post([this, committed](Channel&) {
      if (committed) {
        Reply done;
        done.mutable_done();
        reply(std::move(done));
      } else {
        put_failed(committed.error());
      }
      operation_done();
    }));
  });
}

// --- get -------------------------------------------------------------------------------------------------

void Session::begin_get(const linkspan::blocks::Get& request) {
  busy_ = true;
  name_ = request.name();
  get_ = Get();
  get_->file = std::make_shared<GetFile>();
  const bool with_checksum = context_.checksum && !request.without_checksum();
  context_.files.run(
      [this, self = self_, &store = context_.store, file = get_->file, name = name_, with_checksum] {
        auto block = store.get(name, with_checksum);
        if (!block) {
          static_cast<void>(self.post([this, error = block.error()](Channel&) {
            reply_failure(error);
            operation_done();
          }));
          return;
        }
        file->block = std::move(block).value();
        static_cast<void>(self.post([this, size = file->block->size_bytes(),
                                     crc32 = file->block->crc32()](Channel&) { block_opened(size, crc32); }));
      });
}

void Session::block_opened(std::uint64_t size_bytes, std::optional<std::uint32_t> crc32) {
  get_->size_bytes = size_bytes;
  Reply info;
  info.mutable_block()->set_size_bytes(size_bytes);
  if (crc32) info.mutable_block()->set_crc32(*crc32);
  reply(std::move(info));
  prepare_chunks();
}

// Keeps the file thread ahead of the network by at most the window, and by two chunks at least.
void Session::prepare_chunks() {
  const std::uint64_t window = std::max<std::uint64_t>(kFileWindowBytes, 2 * context_.chunk_bytes);
  while (get_->next_offset < get_->size_bytes && get_->in_flight_bytes + context_.chunk_bytes <= window) {
    const std::uint64_t offset = get_->next_offset;
    const std::size_t size = std::min<std::uint64_t>(context_.chunk_bytes, get_->size_bytes - offset);
    get_->next_offset += size;
    get_->in_flight_bytes += size;
    context_.files.run([this, self = self_, file = get_->file, offset, size] {
      Result<Slice> chunk = file->block->chunk(offset, size);
      static_cast<void>(self.post([this, chunk = std::move(chunk)](Channel&) mutable {
        if (!get_) return;  // it failed already
        if (chunk) return chunk_prepared(std::move(chunk).value());
        reply_failure(chunk.error());
        operation_done();
      }));
    });
  }
  if (get_->in_flight_bytes == 0) operation_done();
}

void Session::chunk_prepared(Slice&& bytes) {
  const std::size_t size = bytes.size();
  Envelope<Reply> chunk;
  chunk.message.mutable_chunk();
  chunk.message.set_payload(chunk.payloads.add(Chain(std::move(bytes))));
  write(std::move(chunk), [this, file = get_->file, size](std::error_code error) {
    if (error || !get_ || get_->file != file) return;
    get_->in_flight_bytes -= size;
    prepare_chunks();
  });
}

// --- open ------------------------------------------------------------------------------------------------

void Session::open(const Open& request) {
  busy_ = true;
  name_ = request.name();
  const bool with_checksum = context_.checksum && !request.without_checksum();
  context_.files.run([this, self = self_, &store = context_.store, name = name_, with_checksum] {
    auto block = store.get(name, with_checksum);
    Result<Socket> copy = block ? block.value()->duplicate_descriptor() : Result<Socket>(block.error());
    const std::uint64_t size = block ? block.value()->size_bytes() : 0;
    const std::optional<std::uint32_t> crc32 = block ? block.value()->crc32() : std::nullopt;
    static_cast<void>(self.post([this, copy = std::move(copy), size, crc32](Channel&) mutable {
      if (copy) return pass_file(size, crc32, std::move(copy).value());
      reply_failure(copy.error());
      operation_done();
    }));
  });
}

// Descriptors go past the handlers, so the frame around the message is made here.
void Session::pass_file(std::uint64_t size_bytes, std::optional<std::uint32_t> crc32, Socket&& descriptor) {
  Reply info;
  info.mutable_block()->set_size_bytes(size_bytes);
  if (crc32) info.mutable_block()->set_crc32(*crc32);
  ChainWriter writer(heap_allocator());
  writer.write_big_endian(static_cast<std::uint32_t>(info.ByteSizeLong()));
  writer.write(info.SerializeAsString());
  WithDescriptors message{writer.take(), {}};
  message.descriptors.push_back(std::move(descriptor));
  channel().write(std::move(message), [this, self = self_](std::error_code error) {
    if (self.here() == nullptr || !busy_) return;
    if (error) {
      reply_failure(Error(error, "files can only be passed over a unix socket: " + error.message()));
    } else {
      log(LogLevel::info, "blocks", "block \"" + name_ + "\": its file was passed to a client");
    }
    operation_done();
  });
}

// --- the rest --------------------------------------------------------------------------------------------

void Session::remove(const Remove& request) {
  busy_ = true;
  name_ = request.name();
  context_.files.run([this, self = self_, &store = context_.store, name = name_] {
    Status removed = store.remove(name);
    static_cast<void>(self.post([this, removed](Channel&) {
      if (removed) {
        Reply done;
        done.mutable_done();
        reply(std::move(done));
      } else {
        reply_failure(removed.error());
      }
      operation_done();
    }));
  });
}

void Session::list(const List& request) {
  busy_ = true;
  context_.files.run([this, self = self_, &store = context_.store, after = request.after()] {
    bool more = false;
    auto names = store.list(after, kNamesMost, more);
    static_cast<void>(self.post([this, names = std::move(names), more](Channel&) {
      if (names) {
        Reply found;
        found.mutable_names()->set_more(more);
        for (const std::string& name : names.value()) found.mutable_names()->add_name(name);
        reply(std::move(found));
      } else {
        reply_failure(names.error());
      }
      operation_done();
    }));
  });
}

void Session::send_copy_counts() {
  const CopyCounts counts = CopyLedger::total();
  Reply message;
  ServerCopyCounts& copied = *message.mutable_copy_counts();
  copied.set_framing_bytes(counts[CopyPlace::framing]);
  copied.set_marshal_bytes(counts[CopyPlace::marshal]);
  copied.set_write_bytes(counts[CopyPlace::write]);
  copied.set_receive_bytes(counts[CopyPlace::receive]);
  copied.set_below_threshold_bytes(counts[CopyPlace::below_threshold]);
  copied.set_other_bytes(counts[CopyPlace::unshare] + counts[CopyPlace::user]);
  reply(std::move(message));
}

void Session::reply_failure(const Error& error) {
  log(LogLevel::warning, "blocks", "block \"" + name_ + "\": " + error.message());
  Reply message;
  message.mutable_failure()->set_reason(error.message());
  reply(std::move(message));
}

// A request that breaks the protocol: nothing that follows can be trusted.
void Session::refuse(const std::string& why) {
  reply_failure(Error(errc::malformed, why));
  channel().close();
}

void Session::operation_done() {
  // The file's part goes where files are closed and memory is unmapped.
  if (put_) context_.files.run([file = std::move(put_->file)] {});
  if (get_) context_.files.run([file = std::move(get_->file)] {});
  if (put_ && put_->paused && channel().active()) channel().resume_read();
  put_.reset();
  get_.reset();
  busy_ = false;
  if (close_when_idle_) channel().close();
}

void Session::on_read_end() {
  if (put_) {
    log(LogLevel::warning, "blocks", "block \"" + name_ + "\": the peer ended in the middle of a put");
    channel().close();
  } else if (busy_) {
    close_when_idle_ = true;
  } else {
    channel().close();
  }
}

void Session::on_drain(Duration deadline) {
  if (busy_) {
    close_when_idle_ = true;
  } else {
    channel().close(deadline);
  }
}

void Session::on_inactive(std::error_code error) {
  if (error && busy_) {
    log(LogLevel::warning, "blocks", "block \"" + name_ + "\": " + error.message());
  }
  close_when_idle_ = false;
  if (busy_) operation_done();
}

}  // namespace linkspan::blocks
