// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Pipeline: the handlers of a channel, in order from the wire to the application. What neighbours give and
// take is compared when they are joined; an edit that does not fit is refused with a message that names both,
// and leaves the pipeline as it was. Handlers can be added, removed and replaced at any time, also from
// inside their own functions.
// Not for: branches; a pipeline is a line.
// Cost: 112 bytes and its handlers; an edit looks at each of them, a message costs nothing here.
// Threads: the loop's thread only.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <variant>
#include <vector>

#include "linkspan/base/assert.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/channel/handler.hpp"
#include "linkspan/channel/packet.hpp"

namespace linkspan {

/// What a pipeline reads and takes at its wire end.
enum class Wire : std::uint8_t {
  bytes,    ///< Chain
  packets,  ///< Packet, on datagram channels
};

/// Belongs to a channel.
class LINKSPAN_API Pipeline {
 public:
  explicit Pipeline(Channel& channel, Wire wire) noexcept;
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline();

  // Edits. Several handlers given to one call are joined at compile time and added together or not at all.
  // An edit fails with errc::invalid_argument when types do not fit, with errc::cancelled once the channel is
  // closed; a handler that was refused is destroyed.

  /// At the application's end.
  template <class... H>
  Status append(std::unique_ptr<H>... handlers) {
    return insert(*ends_.previous_, ends_, std::move(handlers)...);
  }
  /// The same, each made by its default constructor.
  template <std::default_initializable... H>
  requires(sizeof...(H) > 0) Status append() { return append(std::make_unique<H>()...); }

  /// At the wire's end.
  template <class... H>
  Status prepend(std::unique_ptr<H>... handlers) {
    return insert(ends_, *ends_.next_, std::move(handlers)...);
  }
  /// On the wire's side of `position`.
  template <class... H>
  Status insert_before(HandlerNode& position, std::unique_ptr<H>... handlers) {
    assert_here(position);
    return insert(*position.previous_, position, std::move(handlers)...);
  }
  /// On the application's side of `position`.
  template <class... H>
  Status insert_after(HandlerNode& position, std::unique_ptr<H>... handlers) {
    assert_here(position);
    return insert(position, *position.next_, std::move(handlers)...);
  }

  /// `handler` is destroyed at the end of the tick. What it had not decoded goes to the next one.
  Status remove(HandlerNode& handler) {
    assert_here(handler);
    return edit(*handler.previous_, *handler.next_, {}, {});
  }
  /// Puts `handlers` in the place of `old`; what `old` had not decoded goes to the first of them, when the
  /// event that runs now is over.
  template <class... H>
  Status replace(HandlerNode& old, std::unique_ptr<H>... handlers) {
    assert_here(old);
    return insert(*old.previous_, *old.next_, std::move(handlers)...);
  }
  /// The same for `old` and everything behind it: a protocol upgrade.
  template <class... H>
  Status replace_rest(HandlerNode& old, std::unique_ptr<H>... handlers) {
    assert_here(old);
    return insert(*old.previous_, ends_, std::move(handlers)...);
  }

  /// The first handler that is an H, or nullptr.
  template <class H>
  [[nodiscard]] H* find() const noexcept {
    for (HandlerNode* node = ends_.next_; node != &ends_; node = node->next_) {
      if (H* found = dynamic_cast<H*>(node)) return found;
    }
    return nullptr;
  }
  /// The first handler whose type has that name (without namespaces), or nullptr.
  [[nodiscard]] HandlerNode* find(std::string_view type) const;

  [[nodiscard]] Channel& channel() const noexcept { return channel_; }
  [[nodiscard]] std::size_t size() const noexcept;
  /// The types of the handlers, separated by commas.
  [[nodiscard]] std::string to_string() const;

 private:
  friend class Channel;
  friend class HandlerNode;

  // Both ends: where messages and events arrive that nobody took, and what gives bytes to the channel.
  class Ends final : public HandlerNode {
   public:
    void on_read_end() override;
    void on_error(std::error_code error, std::string_view detail) override;
    void on_drain(Duration deadline) override;
    void on_active() override;
    void on_user_event(const std::any& event) override;
    void on_descriptors(std::vector<Socket>&& descriptors) override;
    void on_refused(std::error_code error, const Endpoint& peer) override;
  };
  template <class Message>
  static const detail::HandlerTable kEndsTable;

  struct Unread {
    HandlerNode* behind;  // for whoever comes next to it when this is delivered
    std::variant<Chain, Packet> message;
  };

  template <class... H>
  Status insert(HandlerNode& before, HandlerNode& after, std::unique_ptr<H>... handlers) {
    static_cast<void>(detail::Joined<H...>{});
    (prepare(*handlers), ...);
    std::array<std::unique_ptr<HandlerNode>, sizeof...(H)> nodes{std::move(handlers)...};
    std::array<HandlerNode*, sizeof...(H)> added{};
    return edit(before, after, nodes, added);
  }
  template <class H>
  void prepare(H& handler) noexcept {
    LINKSPAN_ASSERT(typeid(handler) == typeid(H), "a handler is added as the type that it is");
    static_cast<HandlerNode&>(handler).table_ = &detail::kHandlerTable<H>;
  }
  void assert_here(const HandlerNode& node) const noexcept {
    LINKSPAN_ASSERT(node.pipeline_ == this && !node.removed(), "a position is a handler in this pipeline");
  }

  // Puts `nodes` in the place of what is between `before` and `after`; all or nothing. `added` has room for
  // as many.
  Status edit(HandlerNode& before, HandlerNode& after, std::span<std::unique_ptr<HandlerNode>> nodes,
              std::span<HandlerNode*> added);
  [[nodiscard]] Status check_joint(const HandlerNode& nearer_wire, const HandlerNode& further) const;
  void exchange(HandlerNode& before, HandlerNode& after, std::span<HandlerNode* const> nodes) noexcept;
  void relink() noexcept;

  // For the channel.
  template <class Message>
  void read(Message&& message) {
    ends_.forward_read(&message);
  }
  template <class T>
  [[nodiscard]] bool write(T&& message) {
    const TypeName& taken = *ends_.previous_->table_->out;
    if (&taken != &kTypeName<T> && !TypeName::same(taken, kTypeName<T>)) return false;
    ends_.forward_write(&message);
    return true;
  }
  [[nodiscard]] bool has_unread() const noexcept { return !unread_.empty(); }
  void deliver_unread();
  template <class Message>
  void hold(Message&& message) {
    unread_.push_back({&ends_, std::move(message)});
  }
  void destroy_removed() noexcept;
  void clear() noexcept;

  Channel& channel_;
  Ends ends_;
  std::vector<std::unique_ptr<HandlerNode>> removed_;  // may still be on the stack
  std::vector<Unread> unread_;                         // taken from removed handlers, not delivered yet
};

}  // namespace linkspan
