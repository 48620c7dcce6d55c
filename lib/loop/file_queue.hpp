// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// FileQueue: the file operations of one loop: which wait, which the engine or a helper thread works on, which
// are to be reported; and the order of a loop's end. What they do is in file_operations.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <system_error>

#include "lib/loop/file_call.hpp"
#include "lib/loop/offload.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/files.hpp"

namespace linkspan::detail {

/// An open file, shared by its handle and its operations. The engine opens descriptors, helpers a File.
struct OpenFile {
  explicit OpenFile(std::string path_in) noexcept : path(std::move(path_in)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  const std::string path;
  std::unique_ptr<File> file;
  int descriptor = -1;
  std::size_t users = 0;  // the handle and the operations under way; of the loop's thread
};

class FileQueue;

/// What is to be done, and what became of it. Lives until it is reported, and as long as a helper works on
/// it.
class FileOperation : public FileCall, public ListNode<FileOperation> {
 public:
  enum class End {
    finished,
    abandoned,  // a helper may still be using everything but the completion
  };

  /// Does all of it, on a helper thread.
  [[nodiscard]] virtual Status run(Files& files) = 0;
  /// Tells the user, once, on the loop's thread.
  virtual void report(Status status, End end) = 0;

  void on_result(int result) noexcept final;
  [[nodiscard]] Error failure(std::error_code reason) const;

  Status outcome = std::monostate();
  std::shared_ptr<OpenFile> file;       // that it works on
  std::shared_ptr<FileOperation> self;  // while it is in a list
  Offload offload;
  bool for_engine;  // if that knows such calls

 protected:
  /// `what` and `path` are for errors.
  FileOperation(FileQueue& queue, Kind kind, bool for_engine, const char* what, std::string path);

  /// Takes the result of one call in. Whether there is another one to make.
  virtual bool take(int) { return false; }

  FileQueue& queue_;
  const char* const what_;
  const std::string path_;
};

/// Lives as long as its loop, or longer with files that are still open.
class FileQueue final : public DeferredTask,
                        public PendingWork,
                        public std::enable_shared_from_this<FileQueue> {
 public:
  explicit FileQueue(EventLoop& loop);

  void add(std::shared_ptr<FileOperation> operation);
  /// One user less; the last one closes the file.
  void release(std::shared_ptr<OpenFile> file) noexcept;
  void loop_gone() noexcept { loop_ = nullptr; }

  /// Whether the engine does everything with open files.
  [[nodiscard]] bool engine_opens() const noexcept { return engine_opens_; }

  /// An operation has another call to make, or has come to its end.
  void continue_in_engine(FileOperation& operation);
  void finish(FileOperation& operation) noexcept;

  void run_deferred() override;
  void loop_stops() noexcept override;
  void loop_ends() noexcept override;

 private:
  using Operations = IntrusiveList<FileOperation, FileOperation>;

  void enter(std::shared_ptr<FileOperation> operation);
  void finish_soon(FileOperation& operation, Error error);
  void start_waiting();
  void start(FileOperation& operation);
  [[nodiscard]] Status try_start(FileOperation& operation);
  void report(FileOperation& operation, Status status, FileOperation::End end) noexcept;

  EventLoop* loop_;   // nullptr once it is gone
  FileCalls* calls_;  // nullptr: helpers do it all
  bool engine_opens_ = false;
  Operations waiting_;
  Operations begun_;
  Operations finished_;
  std::size_t begun_count_ = 0;
  std::size_t under_way_ = 0;  // in the three lists
};

}  // namespace linkspan::detail
