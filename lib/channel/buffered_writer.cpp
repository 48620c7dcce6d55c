// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/buffered_writer.hpp"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "lib/base/log_exception.hpp"
#include "linkspan/base/assert.hpp"
#include "linkspan/buffer/chain_writer.hpp"

namespace linkspan {
namespace {

// What will be said of a write, and to whom: nobody, until all the memory for it is there.
struct Outcome {
  std::error_code error = make_error_code(errc::cancelled);
  WriteDone done;
};

// Runs a completion once: as a task of the loop, or when such a task is destroyed because the loop has ended.
class Completion {
 public:
  explicit Completion(std::shared_ptr<Outcome> outcome) noexcept : outcome_(std::move(outcome)) {}
  Completion(Completion&& other) noexcept = default;
  Completion& operator=(Completion&&) = delete;
  ~Completion() {
    if (outcome_ == nullptr || !outcome_->done) return;
    try {
      (*this)();
    } catch (...) {
      log_exception("channel", "the completion of a buffered write");
    }
  }
  void operator()() {
    WriteDone done = std::exchange(outcome_->done, nullptr);
    if (done) done(outcome_->error);
  }

 private:
  std::shared_ptr<Outcome> outcome_;
};

// Without memory for a task it is called here.
void complete_later(EventLoop& loop, WriteDone done, std::error_code error) noexcept {
  if (!done) return;
  try {
    auto outcome = std::make_shared<Outcome>();
    EventLoop::PreparedTask task{Completion(outcome)};
    outcome->error = error;
    outcome->done = std::exchange(done, nullptr);
    std::move(task).post(loop);
  } catch (const std::bad_alloc&) {
    try {
      done(error);
    } catch (...) {
      log_exception("channel", "the completion of a buffered write");
    }
  }
}

std::size_t block_bytes_for(std::size_t pool_bytes) noexcept {
  std::size_t chosen = BlockPool::kClassBytes.front();
  for (const std::size_t bytes : BlockPool::kClassBytes) {
    if (bytes <= pool_bytes) chosen = bytes;
  }
  return chosen;
}

BlockPoolOptions pool_options(std::size_t pool_bytes) noexcept {
  const std::size_t block_bytes = block_bytes_for(pool_bytes);
  BlockPoolOptions options;
  options.budget_bytes = std::max(pool_bytes / block_bytes * block_bytes, block_bytes);
  options.cache_bytes = options.budget_bytes;
  return options;
}

}  // namespace

ChunkSend send_bytes_to(ChannelRef channel) {
  return [channel = std::move(channel)](Chunk&& chunk, WriteDone done) {
    channel.write(std::move(chunk.bytes), [channel, done = std::move(done)](std::error_code error) mutable {
      if (error) channel.abort();
      done(error);
    });
  };
}

ChunkSend send_chunks_to(ChannelRef channel) {
  return [channel = std::move(channel)](Chunk&& chunk, WriteDone done) {
    channel.write(std::move(chunk), [channel, done = std::move(done)](std::error_code error) mutable {
      if (error) channel.abort();
      done(error);
    });
  };
}

// Invariants: the stream's bytes are, in order: acknowledged_, those of sealed_, those of open_, those of
// waiting_; offsets of sealed_ and open_ are contiguous. pending_bytes_ are those of sealed_ and open_. What
// a chunk's completion refers to by number is thought of as gone when connection_ has changed.
class BufferedWriter::Core final : public std::enable_shared_from_this<Core>,
                                   private DeferredTask,
                                   private PendingWork {
 public:
  Core(EventLoop& loop, const BufferedWriterOptions& options)
      : loop_(loop),
        options_(options),
        block_bytes_(block_bytes_for(options.pool_bytes)),
        pool_(pool_options(options.pool_bytes)) {
    LINKSPAN_ASSERT(options.chunk_bytes != 0, "a chunk has a byte at least");
    open_.checksum_kind = options.checksum;
  }

  void start() {
    pool_.set_available_callback([weak = weak_from_this(), loop = &loop_]() {
      try {  // on whatever thread a block comes back
        EventLoop::PreparedTask([weak] {
          if (const auto core = weak.lock()) core->block_is_back();
        }).post(*loop);
      } catch (const std::bad_alloc&) {
        log_exception("channel", "telling a writer of a free block");
      }
    });
  }
  void end() noexcept {
    pool_.set_available_callback(nullptr);
    fail(make_error_code(errc::cancelled));
    DeferredTask::unlink();
    PendingWork::unlink();
  }

  void attach(ChunkSend send) {
    if (error_) return;
    send_ = std::make_shared<ChunkSend>(std::move(send));
    ++connection_;
    detached_reason_ = {};
    for (Sealed& sealed : sealed_) sealed.accepted = false;
    next_to_send_ = first_number_;
    send_sealed();
    look_again();
  }

  std::error_code write(std::span<const std::byte> bytes, WriteDone&& done) {
    return or_end(done, [&]() -> std::error_code {
      if (const std::error_code refusal = admit(bytes.size())) return refuse(std::move(done), refusal);
      if (refers_to(bytes.size())) {
        take_reference(bytes, std::move(done));
        return error_;
      }
      if (const std::error_code refusal = reserve(bytes.size())) return refuse(std::move(done), refusal);
      while (!bytes.empty() && !error_) bytes = bytes.subspan(copy_some(bytes));
      taken(std::move(done));
      return error_;
    });
  }

  std::error_code write(Chain&& bytes, WriteDone&& done) {
    return or_end(done, [&]() -> std::error_code {
      if (const std::error_code refusal = admit(bytes.size())) return refuse(std::move(done), refusal);
      std::size_t copied = 0;
      for (const Slice& slice : bytes) copied += refers_to(slice) ? 0 : slice.size();
      if (const std::error_code refusal = reserve(copied)) return refuse(std::move(done), refusal);
      while (!bytes.empty() && !error_) take_from(bytes);
      taken(std::move(done));
      return error_;
    });
  }

  template <class Bytes>
  std::uint64_t write_when_room(Bytes&& bytes, WriteDone&& done) {
    Waiting waiting;
    if constexpr (std::is_same_v<std::decay_t<Bytes>, Chain>) {
      waiting.bytes = std::move(bytes);
    } else {
      waiting.memory = bytes;
    }
    waiting.done = std::move(done);
    if (const std::error_code ended = ended_reason()) {
      complete_later(loop_, std::move(waiting.done), ended);
      return 0;
    }
    if (waiting_.size() >= options_.max_waiting) {
      ++counters_.refused;
      complete_later(loop_, std::move(waiting.done), make_error_code(errc::limit_exceeded));
      return 0;
    }
    waiting.number = ++last_waiting_;
    or_end(waiting.done, [&] {
      const std::size_t size = waiting.size();
      waiting_.push_back(std::move(waiting));
      waiting_bytes_ += size;
      serve_waiting();
      look_at_watermarks();
      return error_;
    });
    return !waiting_.empty() && waiting_.back().number == last_waiting_ ? last_waiting_ : 0;
  }

  bool withdraw(std::uint64_t number) {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), [number](const Waiting& waiting) {
      return waiting.number == number && !waiting.begun && !waiting.flushes;
    });
    if (number == 0 || found == waiting_.end()) return false;
    waiting_bytes_ -= found->size();
    WriteDone done = std::move(found->done);
    waiting_.erase(found);
    complete_later(loop_, std::move(done), make_error_code(errc::cancelled));
    look_again();
    return true;
  }

  void flush(WriteDone&& done) {
    if (error_) return complete_later(loop_, std::move(done), error_);
    if (waiting_.empty()) {
      or_end(done, [&] { return flush_now(std::move(done)); });
      return;
    }
    if (waiting_.size() >= options_.max_waiting && !closed_) {
      return complete_later(loop_, std::move(done), make_error_code(errc::limit_exceeded));
    }
    or_end(done, [&] {
      waiting_.emplace_back().flushes = true;
      waiting_.back().done = std::move(done);
      return error_;
    });
  }
  void close(WriteDone&& done) {
    closed_ = true;
    flush(std::move(done));
  }

  bool acknowledge(std::uint64_t bytes) {
    if (error_) return true;
    if (bytes > sent_end_) return false;
    while (!sealed_.empty() && sealed_.front().chunk.end() <= bytes) acknowledge_front();
    look_again();
    return true;
  }

  void detach(std::error_code reason) {
    if (!error_ && send_ != nullptr) connection_failed(reason);
  }
  void give_up(std::error_code reason) noexcept {
    fail(reason);
    look_again();
  }

  void on_writable_changed(unique_function<void(bool)>&& callback) { on_writable_ = std::move(callback); }
  void on_detached(unique_function<void(std::error_code)>&& callback) { on_detached_ = std::move(callback); }

  [[nodiscard]] bool writable() const noexcept { return !error_ && !closed_ && !full_ && waiting_.empty(); }
  [[nodiscard]] bool attached() const noexcept { return send_ != nullptr; }
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  [[nodiscard]] std::uint64_t taken_bytes() const noexcept { return taken_bytes_; }
  [[nodiscard]] std::uint64_t acknowledged_bytes() const noexcept { return acknowledged_; }
  [[nodiscard]] std::size_t pending_bytes() const noexcept { return pending_bytes_ + waiting_bytes_; }
  [[nodiscard]] const BufferedWriterCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] BlockPoolStatistics pool_statistics() const noexcept { return pool_.statistics(); }
  [[nodiscard]] EventLoop& loop() const noexcept { return loop_; }

 private:
  struct Sealed {
    Chunk chunk;
    bool accepted = false;  // by the kernel
    bool sent = false;      // to some connection
  };
  struct Borrowed {
    std::uint64_t end;
    std::shared_ptr<Outcome> outcome;
  };
  struct Flush {
    std::uint64_t end;
    WriteDone done;
  };
  struct Waiting {
    std::span<const std::byte> memory;  // one of the two
    Chain bytes;
    WriteDone done;
    std::uint64_t number = 0;
    bool begun = false;
    bool flushes = false;  // no bytes: what is before it is to be flushed

    [[nodiscard]] std::size_t size() const noexcept { return memory.size() + bytes.size(); }
  };

  // Without memory for its own books nobody can say what of the stream is where: it ends, and everything
  // completes, also `done`, which the call has not moved from if it did not get there.
  template <class Call>
  std::error_code or_end(WriteDone& done, Call&& call) {
    try {
      return call();
    } catch (const std::bad_alloc&) {
      fail(std::make_error_code(std::errc::not_enough_memory));
      complete_later(loop_, std::move(done), error_);
      return error_;
    }
  }

  // --- taking bytes ---------------------------------------------------------------------------------------

  [[nodiscard]] bool refers_to(std::size_t size) const noexcept {
    return size >= options_.reference_threshold_bytes;
  }
  [[nodiscard]] bool refers_to(const Slice& slice) const noexcept {
    return options_.reference_threshold_bytes != BufferedWriterOptions::kNever &&
           slice.size() >= std::min(kReferenceThreshold, options_.reference_threshold_bytes);
  }
  [[nodiscard]] std::error_code ended_reason() const noexcept {
    if (error_) return error_;
    return closed_ ? make_error_code(errc::shut_down) : std::error_code();
  }
  [[nodiscard]] bool has_room(std::size_t size) const noexcept {
    return pending_bytes_ == 0 || (pending_bytes_ <= options_.max_pending_bytes &&
                                   size <= options_.max_pending_bytes - pending_bytes_);
  }
  [[nodiscard]] std::error_code admit(std::size_t size) const noexcept {
    if (const std::error_code ended = ended_reason()) return ended;
    if (!waiting_.empty()) return make_error_code(errc::pool_exhausted);
    return has_room(size) ? std::error_code() : make_error_code(errc::limit_exceeded);
  }
  std::error_code refuse(WriteDone&& done, std::error_code reason) {
    ++counters_.refused;
    complete_later(loop_, std::move(done), reason);
    if (ended_reason()) return reason;
    if (pending_bytes_ == 0 && reason == errc::limit_exceeded) return reason;  // never fits
    full_ = true;  // also when little is pending: somebody waits for room
    refused_at_ = progress_;
    seal();  // or what was collected would wait for more, which has no room
    look_again();
    return reason;
  }
  void taken(WriteDone&& done) {
    complete_later(loop_, std::move(done), error_);
    look_at_watermarks();
  }

  // Blocks for `size` bytes that will be copied, all or none.
  [[nodiscard]] std::error_code reserve(std::size_t size) {
    if (size > pool_.options().budget_bytes) return make_error_code(errc::limit_exceeded);
    if (pending_bytes_ == 0 && size > block_.size()) block_.reset();  // the whole pool, if need be
    std::size_t have = block_.size();
    while (have < size) {
      Block block = pool_.allocate(block_bytes_);
      if (!block) {
        reserved_.clear();
        return make_error_code(errc::pool_exhausted);
      }
      have += block.size();
      reserved_.push_back(std::move(block));
    }
    return {};
  }

  // How much was copied; 0: there is no room.
  std::size_t copy_some(std::span<const std::byte> from) {
    if (block_.size() == 0) {
      if (!reserved_.empty()) {
        block_ = std::move(reserved_.back());
        reserved_.pop_back();
      } else {
        block_ = pool_.allocate(block_bytes_);
        if (!block_) return 0;
      }
    }
    const std::size_t size = std::min({from.size(), block_.size(), room_in_chunk()});
    copy_bytes(block_.data(), from.data(), size, CopyPlace::collected);
    counters_.copied_bytes += size;
    Slice copied = block_.freeze(size);
    add_checksum(copied);
    open_.bytes.append_joined(std::move(copied));
    count_taken(size);
    return size;
  }

  void append(Slice&& slice) {
    counters_.referenced_bytes += slice.size();
    while (!slice.empty() && !error_) {
      Slice part = slice.split_front(std::min(slice.size(), room_in_chunk()));
      const std::size_t size = part.size();
      add_checksum(part);
      open_.bytes.append(std::move(part));
      count_taken(size);
    }
  }

  // One slice, or what there is room for of it. False: there is none.
  bool take_from(Chain& bytes) {
    if (refers_to(bytes.front())) {
      append(bytes.pop_front());
      return true;
    }
    const std::size_t copied = copy_some(bytes.front().bytes());
    bytes.drop_front(copied);
    return copied != 0;
  }

  void take_reference(std::span<const std::byte> bytes, WriteDone&& done) {
    LINKSPAN_ASSERT(static_cast<bool>(done), "only a completion tells when memory is the caller's again");
    const auto outcome = std::make_shared<Outcome>();
    EventLoop::PreparedTask task{Completion(outcome)};
    Slice slice = Slice::borrow(
        bytes, [task = std::move(task), loop = &loop_]() mutable { std::move(task).post(*loop); });
    borrowed_.push_back({taken_bytes_ + bytes.size(), outcome});
    outcome->done = std::move(done);
    append(std::move(slice));
    seal();
    look_at_watermarks();
  }

  [[nodiscard]] std::size_t room_in_chunk() const noexcept {
    return options_.chunk_bytes - open_.bytes.size();
  }
  void add_checksum(const Slice& slice) noexcept {
    open_.checksum = checksum(options_.checksum, slice.bytes(), open_.checksum);
  }
  void count_taken(std::size_t size) {
    taken_bytes_ += size;
    pending_bytes_ += size;
    if (open_.bytes.size() == options_.chunk_bytes) seal();
  }

  // --- sending --------------------------------------------------------------------------------------------

  void seal() {
    if (error_ || open_.bytes.empty()) return;
    ++counters_.chunks;
    const std::uint64_t end = open_.end();
    sealed_.push_back({std::move(open_)});
    open_ = Chunk();
    open_.offset = end;
    open_.checksum_kind = options_.checksum;
    if (!PendingWork::linked()) loop_.await(*this);
    send_sealed();
  }

  // A send may fail in the call, and then there is nothing more to send, or nothing at all.
  void send_sealed() {
    while (send_ != nullptr && next_to_send_ - first_number_ < sealed_.size()) {
      Sealed& sealed = sealed_[next_to_send_ - first_number_];
      if (std::exchange(sealed.sent, true)) ++counters_.chunks_resent;
      sent_end_ = std::max(sent_end_, sealed.chunk.end());
      const std::uint64_t number = next_to_send_++;
      const std::shared_ptr<ChunkSend> send = send_;
      try {
        WriteDone done = [weak = weak_from_this(), connection = connection_, number](std::error_code error) {
          if (const auto core = weak.lock()) core->chunk_done(connection, number, error);
        };
        (*send)(sealed.chunk.share(), std::move(done));
      } catch (...) {
        log_exception("channel", "sending a chunk");
        connection_failed(make_error_code(errc::handler_failed));
      }
    }
  }

  void chunk_done(std::uint64_t connection, std::uint64_t number, std::error_code error) {
    if (connection != connection_ || error_) return;
    if (error) return connection_failed(error);
    if (options_.acknowledged_by == AcknowledgedBy::peer || number < first_number_) return;
    sealed_[number - first_number_].accepted = true;
    while (!sealed_.empty() && sealed_.front().accepted) acknowledge_front();
    look_again();
  }

  void connection_failed(std::error_code error) {
    send_ = nullptr;
    ++connection_;
    detached_reason_ = error;
    if (!options_.resend) fail(error);
    look_again();
  }

  void acknowledge_front() {
    acknowledged_ = sealed_.front().chunk.end();
    pending_bytes_ -= sealed_.front().chunk.bytes.size();
    while (!borrowed_.empty() && borrowed_.front().end <= acknowledged_) {
      borrowed_.front().outcome->error = {};
      borrowed_.pop_front();
    }
    sealed_.pop_front();  // whose memory may be free now, and those who wait for it hear of it first
    ++first_number_;
    ++progress_;
    next_to_send_ = std::max(next_to_send_, first_number_);
    while (!flushes_.empty() && flushes_.front().end <= acknowledged_) {
      complete_later(loop_, std::move(flushes_.front().done), {});
      flushes_.pop_front();
    }
  }

  std::error_code flush_now(WriteDone&& done) {
    seal();
    if (error_ || acknowledged_ == taken_bytes_) {
      complete_later(loop_, std::move(done), error_);
    } else if (done) {
      flushes_.push_back({taken_bytes_, nullptr});
      flushes_.back().done = std::move(done);
    }
    return error_;
  }

  // The end: everything completes, in the order of the stream.
  void fail(std::error_code reason) noexcept {
    if (error_) return;
    error_ = reason;
    send_ = nullptr;
    ++connection_;
    for (Borrowed& borrowed : borrowed_) borrowed.outcome->error = reason;
    borrowed_.clear();
    sealed_.clear();
    open_.bytes.clear();
    block_.reset();
    reserved_.clear();
    pending_bytes_ = 0;
    waiting_bytes_ = 0;
    // Where they are, as a deque that is moved allocates. Nobody adds to them any more.
    for (; !flushes_.empty(); flushes_.pop_front()) {
      complete_later(loop_, std::move(flushes_.front().done), reason);
    }
    for (; !waiting_.empty(); waiting_.pop_front()) {
      complete_later(loop_, std::move(waiting_.front().done), reason);
    }
  }

  // --- what waits -----------------------------------------------------------------------------------------

  void look_again() { loop_.defer(*this); }
  void block_is_back() {
    ++progress_;
    look_again();
  }

  void look_at_watermarks() {
    if (pending_bytes() > options_.high_watermark_bytes || !waiting_.empty()) full_ = true;
    if (full_ != told_full_) look_again();
  }

  void serve_waiting() {
    bool goes_on = true;
    while (goes_on && !waiting_.empty() && !error_) {
      Waiting first = std::move(waiting_.front());  // out of the way of an end in the middle
      waiting_.pop_front();
      or_end(first.done, [&] {
        goes_on = serve(first);
        return error_;
      });
    }
  }

  // False: there is no room for the rest of it.
  bool serve(Waiting& first) {
    const std::size_t before = first.size();
    const bool complete = first.flushes || take(first);
    if (error_) {
      complete_later(loop_, std::move(first.done), error_);
      return false;
    }
    waiting_bytes_ -= before - (complete ? 0 : first.size());
    if (!complete) {
      waiting_.push_front(std::move(first));
      seal();
      return false;
    }
    if (first.flushes) {
      static_cast<void>(flush_now(std::move(first.done)));
    } else {
      complete_later(loop_, std::move(first.done), error_);
    }
    return true;
  }

  // As much as there is room for; true: all of it.
  bool take(Waiting& write) {
    if (!write.begun && refers_to(write.memory.size())) {
      if (!has_room(write.memory.size())) return false;
      take_reference(write.memory, std::move(write.done));
      return true;
    }
    while (!write.memory.empty() && !error_) {
      const std::size_t copied = has_room(1) ? copy_some(write.memory) : 0;
      if (copied == 0) return false;
      write.begun = true;
      write.memory = write.memory.subspan(copied);
    }
    while (!write.bytes.empty() && !error_) {
      const bool referenced = refers_to(write.bytes.front());
      if (!has_room(referenced ? write.bytes.front().size() : 1) || !take_from(write.bytes)) return false;
      write.begun = true;
    }
    return true;
  }

  // --- at the end of a tick -------------------------------------------------------------------------------

  void run_deferred() override {
    const std::shared_ptr<Core> self = shared_from_this();  // callbacks may destroy the writer
    if (loop_.stopping()) fail(make_error_code(errc::cancelled));
    serve_waiting();
    if (full_ && waiting_.empty() && pending_bytes_ <= low_mark() && refused_at_ != progress_) full_ = false;
    look_at_watermarks();
    if (sealed_.empty() && waiting_.empty()) {
      PendingWork::unlink();
    } else if (!PendingWork::linked()) {
      loop_.await(*this);
    }
    tell();
  }

  // A pool below the watermark is full before that.
  [[nodiscard]] std::size_t low_mark() const noexcept {
    return std::min(options_.low_watermark_bytes, pool_.options().budget_bytes / 2);
  }

  void tell() {
    if (const std::error_code reason = std::exchange(detached_reason_, {}); reason && on_detached_) {
      on_detached_(reason);
    }
    if (full_ != told_full_) {
      told_full_ = full_;
      if (on_writable_) on_writable_(!full_);
    }
  }

  void loop_stops() noexcept override { look_again(); }
  void loop_ends() noexcept override {
    fail(make_error_code(errc::cancelled));
    PendingWork::unlink();
  }

  EventLoop& loop_;
  const BufferedWriterOptions options_;
  const std::size_t block_bytes_;
  BlockPool pool_;
  Block block_;                  // its writable rest
  std::vector<Block> reserved_;  // by the write that runs
  Chunk open_;                   // what is collected
  std::deque<Sealed> sealed_;    // not acknowledged
  std::deque<Borrowed> borrowed_;
  std::deque<Flush> flushes_;
  std::deque<Waiting> waiting_;
  std::shared_ptr<ChunkSend> send_;  // nullptr: not attached
  std::uint64_t connection_ = 0;
  std::uint64_t first_number_ = 0;  // of sealed_
  std::uint64_t next_to_send_ = 0;
  std::uint64_t sent_end_ = 0;
  std::uint64_t taken_bytes_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t last_waiting_ = 0;
  std::uint64_t progress_ = 1;    // counts what makes room
  std::uint64_t refused_at_ = 0;  // of progress_
  std::size_t pending_bytes_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::error_code error_;
  std::error_code detached_reason_;  // on_detached has not been called
  bool closed_ = false;
  bool full_ = false;
  bool told_full_ = false;
  BufferedWriterCounters counters_;
  unique_function<void(bool)> on_writable_;
  unique_function<void(std::error_code)> on_detached_;
};

BufferedWriter::BufferedWriter(EventLoop& loop, const BufferedWriterOptions& options)
    : core_(std::make_shared<Core>(loop, options)) {
  core_->start();
}
BufferedWriter::~BufferedWriter() {
  core_->end();
}

void BufferedWriter::attach(ChunkSend send) {
  core_->attach(std::move(send));
}
std::error_code BufferedWriter::write(std::span<const std::byte> bytes, WriteDone done) {
  return core_->write(bytes, std::move(done));
}
std::error_code BufferedWriter::write(Chain&& bytes, WriteDone done) {
  return core_->write(std::move(bytes), std::move(done));
}
std::uint64_t BufferedWriter::write_when_room(std::span<const std::byte> bytes, WriteDone done) {
  return core_->write_when_room(bytes, std::move(done));
}
std::uint64_t BufferedWriter::write_when_room(Chain&& bytes, WriteDone done) {
  return core_->write_when_room(std::move(bytes), std::move(done));
}
bool BufferedWriter::withdraw(std::uint64_t waiting) {
  return core_->withdraw(waiting);
}
void BufferedWriter::flush(WriteDone done) {
  core_->flush(std::move(done));
}
void BufferedWriter::close(WriteDone done) {
  core_->close(std::move(done));
}
bool BufferedWriter::acknowledge(std::uint64_t bytes) {
  return core_->acknowledge(bytes);
}
void BufferedWriter::detach(std::error_code reason) {
  core_->detach(reason);
}
void BufferedWriter::give_up(std::error_code reason) {
  core_->give_up(reason);
}
void BufferedWriter::on_writable_changed(unique_function<void(bool writable)> callback) {
  core_->on_writable_changed(std::move(callback));
}
void BufferedWriter::on_detached(unique_function<void(std::error_code error)> callback) {
  core_->on_detached(std::move(callback));
}
bool BufferedWriter::writable() const noexcept {
  return core_->writable();
}
bool BufferedWriter::attached() const noexcept {
  return core_->attached();
}
std::error_code BufferedWriter::error() const noexcept {
  return core_->error();
}
std::uint64_t BufferedWriter::taken_bytes() const noexcept {
  return core_->taken_bytes();
}
std::uint64_t BufferedWriter::acknowledged_bytes() const noexcept {
  return core_->acknowledged_bytes();
}
std::size_t BufferedWriter::pending_bytes() const noexcept {
  return core_->pending_bytes();
}
const BufferedWriterCounters& BufferedWriter::counters() const noexcept {
  return core_->counters();
}
BlockPoolStatistics BufferedWriter::pool_statistics() const noexcept {
  return core_->pool_statistics();
}
EventLoop& BufferedWriter::loop() const noexcept {
  return core_->loop();
}

}  // namespace linkspan
