// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/type_name.hpp"

namespace linkspan {
namespace {

// Spelled so by gcc and by clang.
constexpr std::string_view kAnonymous[] = {"{anonymous}", "(anonymous namespace)"};

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
}

}  // namespace

bool TypeName::same(const TypeName& a, const TypeName& b) noexcept {
  if (&a == &b) return true;
  for (const std::string_view anonymous : kAnonymous) {
    if (a.raw.find(anonymous) != std::string_view::npos) return false;
  }
  return a.raw == b.raw;
}

std::string TypeName::to_string() const {
  std::string text(raw);
  for (const std::string_view anonymous : kAnonymous) replace_all(text, std::string(anonymous) + "::", "");
  replace_all(text, "linkspan::", "");
  replace_all(text, "std::__cxx11::", "std::");
  replace_all(text, "std::basic_string<char>", "std::string");
  return text;
}

}  // namespace linkspan
