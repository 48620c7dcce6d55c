// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "operations.hpp"

#include <algorithm>
#include <utility>

#include "limits.hpp"
#include "linkspan/buffer/checksum.hpp"

namespace linkspan::blocks {

// --- put -------------------------------------------------------------------------------------------------

void PutOperation::start() {
  Request begin;
  begin.mutable_begin_put()->set_name(name_);
  begin.mutable_begin_put()->set_without_checksum(!context_.options.checksum);
  send(std::move(begin));
  BufferedWriterOptions options;
  options.chunk_bytes = context_.options.chunk_bytes;
  writer_.emplace(channel().loop(), options);
  writer_->attach([this](Chunk&& chunk, WriteDone done) { send_chunk(std::move(chunk), std::move(done)); });
  context_.files.run([this, self = self_, source = source_, path = path_] {
    auto file = Environment::system().files.open(path, OpenMode::read);
    Result<std::uint64_t> size = file ? file.value()->size() : Result<std::uint64_t>(file.error());
    if (file) source->file = std::move(file).value();
    static_cast<void>(self.post([this, size](Channel&) {
      if (size) return file_opened(size.value());
      finish(size.error());
    }));
  });
}

void PutOperation::file_opened(std::uint64_t size_bytes) {
  size_bytes_ = size_bytes;
  read_chunks();
  if (size_bytes == 0) end_of_file();
}

void PutOperation::read_chunks() {
  if (finished()) return;
  const std::uint64_t window = std::max<std::uint64_t>(kFileWindowBytes, 2 * context_.options.chunk_bytes);
  while (next_offset_ < size_bytes_ && in_flight_bytes_ + context_.options.chunk_bytes <= window) {
    const std::uint64_t offset = next_offset_;
    const std::size_t size = std::min<std::uint64_t>(context_.options.chunk_bytes, size_bytes_ - offset);
    next_offset_ += size;
    in_flight_bytes_ += size;
    context_.files.run(
        [this, self = self_, source = source_, offset, size, with_checksum = context_.options.checksum] {
          // Read, not mapped: touching a mapping that somebody truncates would end this program.
          Result<Slice> chunk = Error(errc::pool_exhausted, "no memory for a chunk");
          if (Block block = heap_allocator().allocate(size)) {
            Result<std::size_t> read = source->file->read_at(block.writable().first(size), offset);
            if (!read) {
              chunk = read.error();
            } else if (read.value() < size) {
              chunk = Error(errc::truncated, "the file was truncated while it was read");
            } else {
              chunk = std::move(block).freeze_all(size);
              if (with_checksum) source->crc32 = crc32(chunk.value().bytes(), source->crc32);
            }
          }
          static_cast<void>(self.post([this, chunk = std::move(chunk)](Channel&) mutable {
            if (finished()) return;
            if (chunk) return chunk_read(std::move(chunk).value());
            finish(chunk.error());
          }));
        });
  }
}

void PutOperation::chunk_read(Slice&& bytes) {
  read_bytes_ += bytes.size();
  if (const std::error_code error = writer_->write(Chain(std::move(bytes)))) {
    return finish(Error(error, "writing: " + error.message()));
  }
  if (read_bytes_ == size_bytes_) end_of_file();
}

void PutOperation::send_chunk(Chunk&& chunk, WriteDone done) {
  const std::size_t size = chunk.size_bytes();
  Request message;
  message.mutable_put_chunk();
  send(std::move(message), std::move(chunk.bytes),
       [this, size, done = std::move(done)](std::error_code error) mutable {
         done(error);
         if (error) return;  // on_inactive follows
         progress();
         in_flight_bytes_ -= size;
         read_chunks();
       });
}

void PutOperation::end_of_file() {
  writer_->close([this, self = self_](std::error_code error) {
    // The writer's completions come also when this operation is gone.
    if (error || self.here() == nullptr || finished()) return;
    send_finish();
  });
}

void PutOperation::send_finish() {
  if (context_.options.checksum) crc32_ = source_->crc32;  // the file thread is done with it
  Request message;
  message.mutable_finish_put()->set_size_bytes(size_bytes_);
  if (crc32_) message.mutable_finish_put()->set_crc32(*crc32_);
  send(std::move(message));
}

void PutOperation::take(Envelope<Reply>&& reply) {
  if (!reply.message.has_done()) return unexpected();
  finish(Transfer{size_bytes_, seconds(), crc32_});
}

void PutOperation::release() {
  context_.files.run([source = std::move(source_)] {});
}

// --- get -------------------------------------------------------------------------------------------------

void GetOperation::start() {
  Request request;
  request.mutable_get()->set_name(name_);
  request.mutable_get()->set_without_checksum(!context_.options.checksum);
  send(std::move(request));
  if (!path_) return;
  context_.files.run([this, self = self_, sink = sink_, path = *path_] {
    Status opened = sink->open(path);
    if (opened) return;
    sink->failed = true;
    static_cast<void>(self.post([this, opened](Channel&) { finish(opened.error()); }));
  });
}

void GetOperation::take(Envelope<Reply>&& reply) {
  if (finished()) return;
  if (!announced_ && reply.message.has_block()) {
    announced_ = true;
    size_bytes_ = reply.message.block().size_bytes();
    if (reply.message.block().has_crc32() && context_.options.checksum)
      crc32_ = reply.message.block().crc32();
  } else if (announced_ && reply.message.has_chunk()) {
    Chain chunk = reply.payloads.take(reply.message.payload());
    if (chunk.size() > size_bytes_ - received_bytes_) return unexpected();
    take_chunk(std::move(chunk));
  } else {
    return unexpected();
  }
  if (received_bytes_ == size_bytes_) commit();
}

void GetOperation::take_chunk(Chain&& bytes) {
  const std::size_t size = bytes.size();
  received_bytes_ += size;
  unwritten_bytes_ += size;
  if (!paused_ && unwritten_bytes_ > kFileWindowBytes) {
    paused_ = true;
    channel().pause_read();
  }
  context_.files.run([this, self = self_, sink = sink_, chunk = std::move(bytes), size,
                      with_checksum = crc32_.has_value()]() mutable {
    if (sink->failed) return;
    if (with_checksum) sink->crc32 = checksum(ChecksumKind::crc32, chunk, sink->crc32);
    if (Status written = sink->append(chunk); !written) {
      sink->failed = true;
      static_cast<void>(self.post([this, error = written.error()](Channel&) { finish(error); }));
      return;
    }
    chunk.clear();  // back to the loop's pool before the loop hears of it
    sink->unreported_bytes += size;
    if (sink->unreported_bytes < kReportBytes) return;
    const std::size_t written_bytes = std::exchange(sink->unreported_bytes, 0);
    static_cast<void>(self.post([this, written_bytes](Channel&) { bytes_written(written_bytes); }));
  });
}

void GetOperation::bytes_written(std::size_t bytes) {
  if (finished()) return;
  progress();
  unwritten_bytes_ -= bytes;
  if (paused_ && unwritten_bytes_ <= kFileWindowBytes / 2) {
    paused_ = false;
    channel().resume_read();
  }
}

void GetOperation::commit() {
  context_.files.run([this, self = self_, sink = sink_, expected = crc32_] {
    Status done = std::monostate();
    if (sink->failed) {
      done = Error(errc::cancelled, "the get has failed");
    } else if (expected && *expected != sink->crc32) {
      done = Error(errc::malformed, "the checksum does not match: the block is damaged");
    } else {
      done = sink->commit();
    }
    static_cast<void>(self.post([this, done](Channel&) {
      if (!done) return finish(done.error());
      finish(Transfer{size_bytes_, seconds(), crc32_});
    }));
  });
}

void GetOperation::release() {
  context_.files.run([sink = std::move(sink_)] {});
}

}  // namespace linkspan::blocks
