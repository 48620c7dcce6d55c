// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/handler.hpp"

#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/pipeline.hpp"

namespace linkspan {

HandlerNode::~HandlerNode() = default;

void HandlerNode::on_added() {}
void HandlerNode::on_removed() {}
Chain HandlerNode::take_unread() {
  return {};
}

void HandlerNode::on_active() {
  pass_active();
}
void HandlerNode::on_read_end() {
  pass_read_end();
}
void HandlerNode::on_error(std::error_code error, std::string_view detail) {
  pass_error(error, detail);
}
void HandlerNode::on_drain(Duration deadline) {
  pass_drain(deadline);
}
void HandlerNode::on_user_event(const std::any& event) {
  pass_user_event(event);
}

void HandlerNode::on_descriptors(std::vector<Socket>&& descriptors) {
  pass_descriptors(std::move(descriptors));
}

void HandlerNode::on_refused(std::error_code error, const Endpoint& peer) {
  pass_refused(error, peer);
}

void HandlerNode::on_inactive(std::error_code) {}
void HandlerNode::on_writable_changed(bool) {}
void HandlerNode::on_write_closed(std::error_code) {}
void HandlerNode::on_read_resumed() {}

Channel& HandlerNode::channel() const noexcept {
  return pipeline_->channel();
}

HandlerNode& HandlerNode::next_taking_part(detail::Event event) const noexcept {
  HandlerNode* node = next_;
  while (node->removed() || (node->table_->events & event) == 0) node = node->next_;
  return *node;
}

void HandlerNode::pass_active() {
  next_taking_part(detail::kActive).on_active();
}
void HandlerNode::pass_read_end() {
  next_taking_part(detail::kReadEnd).on_read_end();
}
void HandlerNode::pass_error(std::error_code error, std::string_view detail) {
  next_taking_part(detail::kError).on_error(error, detail);
}
void HandlerNode::pass_drain(Duration deadline) {
  next_taking_part(detail::kDrain).on_drain(deadline);
}
void HandlerNode::pass_user_event(const std::any& event) {
  next_taking_part(detail::kUserEvent).on_user_event(event);
}

void HandlerNode::pass_descriptors(std::vector<Socket>&& descriptors) {
  next_taking_part(detail::kDescriptors).on_descriptors(std::move(descriptors));
}

void HandlerNode::pass_refused(std::error_code error, const Endpoint& peer) {
  next_taking_part(detail::kRefused).on_refused(error, peer);
}

void HandlerNode::write_to_wire(FileRange&& range, WriteDone done) {
  channel().start_write(std::move(range), std::move(done));
}
void HandlerNode::write_to_wire(WithDescriptors&& message, WriteDone done) {
  channel().start_write(std::move(message), std::move(done));
}

void HandlerNode::complete_write(WriteDone done, std::uint64_t begin) {
  if (done) channel().complete(std::move(done), begin);
}

void HandlerNode::fail_write(WriteDone done) {
  if (done) channel().complete_later(std::move(done), make_error_code(errc::handler_failed));
}

std::uint64_t HandlerNode::write_position() const noexcept {
  return channel().write_position();
}

}  // namespace linkspan
