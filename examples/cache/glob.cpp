// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "glob.hpp"

#include <cstddef>
#include <utility>

namespace linkspan::cache {
namespace {

char folded(char c, bool ignore_case) {
  return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

/// Whether `c` is in the set that begins behind the bracket at the front of `pattern`, which is left
/// behind.
bool set_matches(std::string_view& pattern, char c, bool ignore_case) {
  pattern.remove_prefix(1);
  const bool inverted = pattern.starts_with('^');
  if (inverted) pattern.remove_prefix(1);
  bool found = false;
  for (; !pattern.empty() && pattern.front() != ']'; pattern.remove_prefix(1)) {
    if (pattern.front() == '\\' && pattern.size() >= 2) {
      pattern.remove_prefix(1);
      found |= pattern.front() == c;
    } else if (pattern.size() >= 3 && pattern[1] == '-') {
      auto low = static_cast<unsigned char>(folded(pattern[0], ignore_case));
      auto high = static_cast<unsigned char>(folded(pattern[2], ignore_case));
      if (low > high) std::swap(low, high);
      const auto here = static_cast<unsigned char>(folded(c, ignore_case));
      found |= here >= low && here <= high;
      pattern.remove_prefix(2);
    } else {
      found |= folded(pattern.front(), ignore_case) == folded(c, ignore_case);
    }
  }
  if (!pattern.empty()) pattern.remove_prefix(1);
  return found != inverted;
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text, bool ignore_case) {
  // Where to go on when what follows the last star does not match: one byte further.
  std::string_view behind_star;
  std::string_view retry;
  bool star = false;
  for (;;) {
    if (pattern.starts_with('*')) {
      pattern.remove_prefix(1);
      behind_star = pattern;
      retry = text;
      star = true;
      continue;
    }
    bool matches = false;
    if (text.empty()) {
      if (pattern.empty()) return true;
    } else if (!pattern.empty()) {
      const char c = text.front();
      if (pattern.front() == '[') {
        matches = set_matches(pattern, c, ignore_case);
      } else {
        if (pattern.front() == '\\' && pattern.size() >= 2) {
          pattern.remove_prefix(1);
          matches = folded(pattern.front(), ignore_case) == folded(c, ignore_case);
        } else {
          matches = pattern.front() == '?' || folded(pattern.front(), ignore_case) == folded(c, ignore_case);
        }
        pattern.remove_prefix(1);
      }
      text.remove_prefix(1);
    }
    if (matches) continue;
    if (!star || retry.empty()) return false;
    retry.remove_prefix(1);
    text = retry;
    pattern = behind_star;
  }
}

}  // namespace linkspan::cache
