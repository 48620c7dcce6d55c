// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// A program of somebody else: it sees nothing of Linkspan but what is installed.
#include <linkspan/base/version.hpp>
#include <linkspan/buffer/chain.hpp>

#include <cstdio>
#include <string>
#include <utility>

int main() {
  linkspan::Chain chain(linkspan::Slice::immortal("hello, "));
  chain.append(linkspan::Slice::adopt(std::string("installed world")));
  linkspan::Chain greeting = chain.split_front(5);
  if (greeting.to_string() != "hello" || chain.size() != 17) return 1;
  greeting.append(std::move(chain));
  if (greeting.to_string() != "hello, installed world" || greeting.slice_count() != 3) return 2;
  std::printf("linkspan %d.%d.%d: %s\n", LINKSPAN_VERSION_MAJOR, LINKSPAN_VERSION_MINOR,
              LINKSPAN_VERSION_PATCH, greeting.to_string().c_str());
  return 0;
}
