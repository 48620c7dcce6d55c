// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/store/store_error.hpp"

#include <string>

#include "lib/base/never_destroyed.hpp"

namespace linkspan {
namespace {

const char* text(store_errc code) noexcept {
  switch (code) {
    case store_errc::key_too_long: return "the key is longer than max_key_bytes";
    case store_errc::value_too_long: return "the value is longer than max_value_bytes";
    case store_errc::no_room: return "max_bytes are used and nothing can be evicted";
    case store_errc::out_of_memory: return "the system refuses memory";
    case store_errc::exists: return "the key exists";
    case store_errc::absent: return "the key does not exist";
    case store_errc::changed: return "the entry has another version";
  }
  return "unknown error";
}

class StoreCategory final : public std::error_category {
 public:
  const char* name() const noexcept override { return "linkspan.store"; }
  std::string message(int code) const override { return text(static_cast<store_errc>(code)); }
  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<store_errc>(code)) {
      case store_errc::key_too_long:
      case store_errc::value_too_long: return make_error_condition(errc::limit_exceeded);
      case store_errc::no_room:
      case store_errc::out_of_memory: return make_error_condition(errc::pool_exhausted);
      case store_errc::exists:
      case store_errc::absent:
      case store_errc::changed: break;
    }
    return {code, *this};
  }
};

}  // namespace

const std::error_category& store_error_category() noexcept {
  static NeverDestroyed<StoreCategory> category;
  return category.get();
}

}  // namespace linkspan
