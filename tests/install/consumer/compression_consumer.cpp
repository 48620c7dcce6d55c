// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// A program of somebody else that uses linkspan-compression.
#include <linkspan/channel/embedded_channel.hpp>
#include <linkspan/codec/compression_codec.hpp>
#include <linkspan/codec/length_prefix_codec.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

int main() {
  using namespace linkspan;
  const std::string text(100'000, 'x');
  for (const auto algorithm :
       {CompressionAlgorithm::zlib, CompressionAlgorithm::gzip, CompressionAlgorithm::zstd}) {
    CompressionOptions options;
    options.algorithm = algorithm;
    auto last = std::make_unique<Collector<Chain>>();
    Collector<Chain>& collected = *last;
    EmbeddedChannel channel;
    if (!channel.pipeline().append(std::make_unique<LengthPrefixCodec>(),
                                   std::make_unique<CompressionCodec>(options), std::move(last))) {
      return 1;
    }
    channel.open();
    channel.write(Chain(Slice::immortal(std::string_view(text))));
    Chain sent = channel.take_sent();
    std::printf("linkspan-compression: %zu bytes\n", sent.size());
    if (sent.size() > 1000) return 2;
    channel.receive(std::move(sent));
    if (collected.messages.size() != 1 || collected.messages.front() != text) return 3;
  }
  return 0;
}
