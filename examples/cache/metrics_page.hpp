// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// MetricsPage: answers each HTTP request with the counters of the cache, as Prometheus reads them.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "linkspan/channel/channel.hpp"

namespace linkspan::cache {

class MetricsPage final : public Service<Chain> {
 public:
  explicit MetricsPage(std::function<std::string()> text) : text_(std::move(text)) {}

  void on_read(Chain&& bytes) override;

 private:
  std::function<std::string()> text_;
  std::string request_;
};

}  // namespace linkspan::cache
