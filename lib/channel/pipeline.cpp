// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/pipeline.hpp"

#include <exception>
#include <utility>

#include "linkspan/base/log.hpp"
#include "linkspan/channel/channel.hpp"

namespace linkspan {

// --- the ends ---------------------------------------------------------------------------------------------

template <class Message>
const detail::HandlerTable Pipeline::kEndsTable{
    {"the wire"},
    &kTypeName<Message>,
    &kTypeName<Message>,
    &kTypeName<Message>,
    &kTypeName<Message>,
    [](HandlerNode& ends, void*) {
      const detail::HandlerTable& last = *ends.previous_->table_;
      log(LogLevel::error, "channel",
          last.name.to_string() + " passes on " + last.next_in->to_string() + ", but nobody reads it");
      ends.channel().close_because(make_error_code(errc::unhandled));
    },
    [](HandlerNode& ends, void* message) {
      ends.channel().send_from_pipeline(std::move(*static_cast<Message*>(message)));
    },
    ~std::uint32_t{0}};

void Pipeline::Ends::on_active() {}
void Pipeline::Ends::on_read_end() {
  channel().close();
}
void Pipeline::Ends::on_error(std::error_code error, std::string_view detail) {
  log(LogLevel::error, "channel",
      "an error that no handler takes closes a channel: " + error.message() + ": " + std::string(detail));
  channel().close_because(error);
}
void Pipeline::Ends::on_drain(Duration deadline) {
  channel().close(deadline);
}
void Pipeline::Ends::on_user_event(const std::any&) {}
void Pipeline::Ends::on_descriptors(std::vector<Socket>&& descriptors) {
  descriptors.clear();
}
void Pipeline::Ends::on_refused(std::error_code error, const Endpoint& peer) {
  if (!log_enabled(LogLevel::debug)) return;
  log(LogLevel::debug, "channel", "a datagram to " + peer.to_string() + ": " + error.message());
}

// --- edits ------------------------------------------------------------------------------------------------

Pipeline::Pipeline(Channel& channel, Wire wire) noexcept : channel_(channel) {
  ends_.table_ = wire == Wire::packets ? &kEndsTable<Packet> : &kEndsTable<Chain>;
  ends_.pipeline_ = this;
  ends_.next_ = ends_.previous_ = ends_.reader_ = ends_.writer_ = &ends_;
}

Pipeline::~Pipeline() {
  clear();
}

Status Pipeline::check_joint(const HandlerNode& nearer_wire, const HandlerNode& further) const {
  const auto fits = [](const TypeName& given, const TypeName& taken) {
    return TypeName::same(given, taken) || TypeName::same(given, kTypeName<Nothing>);
  };
  const detail::HandlerTable& a = *nearer_wire.table_;
  const detail::HandlerTable& b = *further.table_;
  if (&further == &ends_) return std::monostate{};  // whatever arrives there is looked at when it does
  if (!fits(*a.next_in, *b.in)) {
    return Error(errc::invalid_argument, a.name.to_string() + " passes on " + a.next_in->to_string() +
                                             ", but " + b.name.to_string() + " reads " + b.in->to_string());
  }
  if (!fits(*b.next_out, *a.out)) {
    return Error(errc::invalid_argument, b.name.to_string() + " writes " + b.next_out->to_string() +
                                             ", but " + a.name.to_string() + " takes " + a.out->to_string());
  }
  return std::monostate{};
}

Status Pipeline::edit(HandlerNode& before, HandlerNode& after, std::span<std::unique_ptr<HandlerNode>> nodes,
                      std::span<HandlerNode*> added) {
  if (channel_.closed_) return Error(errc::cancelled, "the channel is closed");
  const HandlerNode* nearer_wire = &before;
  for (const auto& node : nodes) {
    if (Status joint = check_joint(*nearer_wire, *node); !joint) return joint;
    nearer_wire = node.get();
  }
  if (Status joint = check_joint(*nearer_wire, after); !joint) return joint;

  // What may throw comes first.
  std::size_t leaving = 0;
  for (const HandlerNode* old = before.next_; old != &after; old = old->next_) ++leaving;
  removed_.reserve(removed_.size() + leaving);
  if (leaving != 0) unread_.reserve(unread_.size() + 1);
  for (std::size_t i = 0; i < nodes.size(); ++i) added[i] = nodes[i].release();
  exchange(before, after, added);
  return std::monostate{};
}

void Pipeline::exchange(HandlerNode& before, HandlerNode& after,
                        std::span<HandlerNode* const> nodes) noexcept {
  HandlerNode* const old_first = before.next_;
  HandlerNode* last = &before;
  const auto join_to_last = [&last](HandlerNode& node) {
    last->next_ = &node;
    node.previous_ = last;
    last = &node;
  };
  for (HandlerNode* node : nodes) {
    node->pipeline_ = this;
    join_to_last(*node);
  }
  HandlerNode* const last_kept = last;
  join_to_last(after);

  Chain unread;
  for (HandlerNode* old = old_first; old != &after; old = old->next_) {
    old->previous_ = nullptr;  // removed; the other links stay, so that it can go on forwarding
    removed_.emplace_back(old);
    for (Unread& waiting : unread_) {
      if (waiting.behind == old) waiting.behind = last_kept;
    }
  }
  relink();
  if (old_first != &after) {
    channel_.run([&] { unread = old_first->take_unread(); });
    channel_.loop_.defer(channel_);
  }
  if (!unread.empty()) {
    LINKSPAN_ASSERT(TypeName::same(*old_first->table_->in, kTypeName<Chain>),
                    "only a handler that reads Chain has unread bytes");
    unread_.push_back({&before, std::move(unread)});
  }
  for (HandlerNode* old = old_first; old != &after; old = old->next_) {
    channel_.run([old] { old->on_removed(); });
  }
  for (HandlerNode* node : nodes) {
    if (!node->removed()) channel_.run([node] { node->on_added(); });
  }
}

void Pipeline::relink() noexcept {
  HandlerNode* reader = &ends_;
  for (HandlerNode* node = ends_.previous_; node != &ends_; node = node->previous_) {
    node->reader_ = reader;
    if (node->table_->read != nullptr) reader = node;
  }
  ends_.reader_ = reader;

  HandlerNode* writer = &ends_;
  for (HandlerNode* node = ends_.next_; node != &ends_; node = node->next_) {
    node->writer_ = writer;
    if (node->table_->write != nullptr) writer = node;
  }
  ends_.writer_ = writer;
}

void Pipeline::deliver_unread() {
  Unread first = std::move(unread_.front());
  unread_.erase(unread_.begin());
  std::visit([&](auto& message) { first.behind->forward_read(&message); }, first.message);
}

void Pipeline::destroy_removed() noexcept {
  // A destructor may release memory whose completion edits again.
  std::vector<std::unique_ptr<HandlerNode>> gone;
  gone.swap(removed_);
}

void Pipeline::clear() noexcept {
  HandlerNode* const first = ends_.next_;
  ends_.next_ = ends_.previous_ = &ends_;
  relink();
  unread_.clear();
  for (HandlerNode* node = first; node != &ends_; node = node->next_) node->previous_ = nullptr;
  for (HandlerNode* node = first; node != &ends_; node = node->next_) {
    channel_.run([node] { node->on_removed(); });
  }
  for (HandlerNode* node = first; node != &ends_;) delete std::exchange(node, node->next_);
  destroy_removed();
}

// --- look-up ----------------------------------------------------------------------------------------------

HandlerNode* Pipeline::find(std::string_view type) const {
  for (HandlerNode* node = ends_.next_; node != &ends_; node = node->next_) {
    const std::string name = node->table_->name.to_string();
    const std::size_t qualifier = name.rfind("::", name.find('<'));
    if (std::string_view(name).substr(qualifier == std::string::npos ? 0 : qualifier + 2) == type)
      return node;
  }
  return nullptr;
}

std::size_t Pipeline::size() const noexcept {
  std::size_t count = 0;
  for (const HandlerNode* node = ends_.next_; node != &ends_; node = node->next_) ++count;
  return count;
}

std::string Pipeline::to_string() const {
  std::string text;
  for (const HandlerNode* node = ends_.next_; node != &ends_; node = node->next_) {
    if (!text.empty()) text += ", ";
    text += node->table_->name.to_string();
  }
  return text;
}

}  // namespace linkspan
