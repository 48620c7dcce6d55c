// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/loop/file_queue.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "lib/loop/file_operations.hpp"
#include "lib/loop/guarded_call.hpp"
#include "linkspan/base/assert.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan::detail {
namespace {

constexpr std::size_t kLastRounds = 1000;

}  // namespace

OpenFile::~OpenFile() {
  if (descriptor >= 0) ::close(descriptor);
}

FileOperation::FileOperation(FileQueue& queue, Kind kind_in, bool for_engine_in, const char* what,
                             std::string path_in)
    : FileCall(kind_in), for_engine(for_engine_in), queue_(queue), what_(what), path_(std::move(path_in)) {
  path = path_.c_str();
}

void FileOperation::on_result(int result) noexcept {
  // A descriptor is closed even if close(2) was interrupted.
  const bool interrupted = (result == -EINTR || result == -EAGAIN) && kind != Kind::close;
  if (interrupted || (result >= 0 && take(result))) return queue_.continue_in_engine(*this);
  if (result == -ECANCELED) {
    outcome = failure(make_error_code(errc::cancelled));
  } else if (result < 0) {
    outcome = Error(system_error_code(-result), std::string(what_) + " " + path_);
  }
  queue_.finish(*this);
}

Error FileOperation::failure(std::error_code reason) const {
  return {reason, std::string(what_) + " " + path_ + ": " + reason.message()};
}

FileQueue::FileQueue(EventLoop& loop) : loop_(&loop) {
  // Files that are not the system's are used as they are.
  const bool system = &loop.environment().files == &system_files();
  calls_ = system ? loop.engine().file_calls() : nullptr;
  constexpr FileCall::Kind kWithOpenFiles[] = {FileCall::Kind::open,  FileCall::Kind::read,
                                               FileCall::Kind::write, FileCall::Kind::sync,
                                               FileCall::Kind::size,  FileCall::Kind::close};
  engine_opens_ = calls_ != nullptr && std::ranges::all_of(kWithOpenFiles, [this](FileCall::Kind kind) {
                    return calls_->knows(kind);
                  });
}

void FileQueue::enter(std::shared_ptr<FileOperation> operation) {
  LINKSPAN_ASSERT(loop_ != nullptr && loop_->in_loop_thread(), "files are used on their loop's thread");
  if (under_way_++ == 0) loop_->await(*this);
  FileOperation& entered = *operation;
  entered.self = std::move(operation);
  if (entered.file != nullptr) ++entered.file->users;
  waiting_.push_back(entered);
}

void FileQueue::add(std::shared_ptr<FileOperation> operation) {
  FileOperation& added = *operation;
  enter(std::move(operation));
  if (loop_->stopping()) {
    finish_soon(added, added.failure(make_error_code(errc::stopped)));
  } else if (const std::size_t most = loop_->options().max_file_operations; under_way_ > most) {
    finish_soon(added,
                Error(errc::limit_exceeded, added.failure(make_error_code(errc::limit_exceeded)).detail +
                                                ": " + std::to_string(most) +
                                                " operations (EventLoopOptions::max_file_operations)"));
  } else {
    start_waiting();
  }
}

void FileQueue::release(std::shared_ptr<OpenFile> file) noexcept {
  if (--file->users != 0 || loop_ == nullptr || loop_->stopping()) return;
  if (file->descriptor < 0 && file->file == nullptr) return;  // it could not be opened
  try {
    enter(std::make_shared<CloseFile>(*this, std::move(file)));
    start_waiting();
  } catch (const std::bad_alloc&) {
    // Closed by now, on this thread.
  }
}

void FileQueue::finish_soon(FileOperation& operation, Error error) {
  operation.outcome = std::move(error);
  operation.unlink();
  finished_.push_back(operation);
  loop_->defer(*this);
}

void FileQueue::start_waiting() {
  while (!waiting_.empty() && begun_count_ < loop_->options().file_operations_at_once) {
    start(waiting_.pop_front());
  }
}

void FileQueue::start(FileOperation& operation) {
  begun_.push_back(operation);
  ++begun_count_;
  const Status started = try_start(operation);
  if (started) return;
  --begun_count_;
  finish_soon(operation, Error(started.error().code, operation.failure(started.error().code).detail + ": " +
                                                         started.error().detail));
}

Status FileQueue::try_start(FileOperation& operation) try {
  if (operation.for_engine && calls_ != nullptr && calls_->knows(operation.kind)) {
    calls_->start(operation);
    return std::monostate();
  }
  return operation.offload.start(
      *loop_, Helpers::Pace::quick,
      [shared = operation.self, &files = loop_->environment().files] {
        shared->outcome = shared->run(files);
      },
      [this, &operation](std::error_code error) {
        if (error) operation.outcome = operation.failure(error);
        finish(operation);
      });
} catch (const std::bad_alloc&) {
  return Error(std::make_error_code(std::errc::not_enough_memory), "it could not be started");
}

void FileQueue::continue_in_engine(FileOperation& operation) {
  if (!loop_->stopping()) return calls_->start(operation);
  operation.outcome = operation.failure(make_error_code(errc::cancelled));
  finish(operation);
}

void FileQueue::finish(FileOperation& operation) noexcept {
  const std::shared_ptr<FileOperation> keep = operation.self;
  operation.unlink();
  --begun_count_;
  start_waiting();
  report(operation, std::move(operation.outcome), FileOperation::End::finished);
}

void FileQueue::report(FileOperation& operation, Status status, FileOperation::End end) noexcept {
  const std::shared_ptr<FileQueue> alive = shared_from_this();
  const std::shared_ptr<FileOperation> keep = std::move(operation.self);
  operation.unlink();
  if (--under_way_ == 0) ListNode<PendingWork>::unlink();
  auto call = [&] { operation.report(std::move(status), end); };
  guarded_call(call, "a completion of a file operation", loop_->counters());
  if (operation.file != nullptr && end == FileOperation::End::finished) release(std::move(operation.file));
}

void FileQueue::run_deferred() {
  Operations finished;
  finished.splice_back(finished_);
  while (!finished.empty()) {
    FileOperation& operation = finished.front();
    report(operation, std::move(operation.outcome), FileOperation::End::finished);
  }
}

void FileQueue::loop_stops() noexcept {
  while (!waiting_.empty()) {
    finish_soon(waiting_.front(), waiting_.front().failure(make_error_code(errc::cancelled)));
  }
}

void FileQueue::loop_ends() noexcept {
  if (calls_ != nullptr) calls_->finish_all();
  while (!begun_.empty()) {
    FileOperation& operation = begun_.front();
    operation.offload.forget();
    --begun_count_;
    report(operation, operation.failure(make_error_code(errc::cancelled)), FileOperation::End::abandoned);
  }
  // Completions may start operations, which fail, and so on; one that always does must not keep the loop.
  for (std::size_t round = 0; round < kLastRounds && !finished_.empty(); ++round) run_deferred();
  if (finished_.empty()) return;
  log(LogLevel::error, "loop", "completions go on starting file operations on a loop that has ended");
  while (!finished_.empty()) {
    const std::shared_ptr<FileOperation> dropped = std::move(finished_.front().self);
    dropped->unlink();
    if (--under_way_ == 0) ListNode<PendingWork>::unlink();
  }
}

}  // namespace linkspan::detail
