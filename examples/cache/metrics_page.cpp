// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "metrics_page.hpp"

#include <string_view>

namespace linkspan::cache {
namespace {

constexpr std::size_t kRequestMostBytes = std::size_t{8} << 10;

std::string response(std::string_view status, std::string_view body) {
  return "HTTP/1.1 " + std::string(status) +
         "\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

}  // namespace

void MetricsPage::on_read(Chain&& bytes) {
  if (request_.size() + bytes.size() > kRequestMostBytes) return channel().close();
  request_ += bytes.to_string();
  if (request_.find("\r\n\r\n") == std::string::npos) return;
  const bool metrics = request_.starts_with("GET / ") || request_.starts_with("GET /metrics ");
  write(Chain(Slice::adopt(metrics ? response("200 OK", text_()) : response("404 Not Found", ""))));
  channel().close();
}

}  // namespace linkspan::cache
