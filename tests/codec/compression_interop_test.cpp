// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What Compressor makes is read by the programs that everybody has, and what they make by Compressor.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "linkspan/codec/compression.hpp"
#include "support/temporary_directory.hpp"

using namespace linkspan;

namespace {

struct Program {
  CompressionAlgorithm algorithm;
  std::string compress;  // from its input to its output
  std::string decompress;
};

std::string zlib_with_python(std::string_view function) {
  return "python3 -c 'import sys, zlib; sys.stdout.buffer.write(zlib." + std::string(function) +
         "(sys.stdin.buffer.read()))'";
}

std::string output_of(const std::string& command, std::string_view input) {
  const test::TemporaryDirectory directory;
  const std::string from = directory.write("in", input);
  const std::string to = directory.file("out");
  // NOLINTNEXTLINE(cert-env33-c): the commands are the test's own
  REQUIRE(std::system((command + " <" + from + " >" + to).c_str()) == 0);
  std::ifstream file(to, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("gzip, zstd and Python read what a compressor makes, and the other way round") {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i * 7919) + " words\n";
  std::vector<Program> programs = {
      {CompressionAlgorithm::gzip, "gzip -c", "gzip -dc"},
      {CompressionAlgorithm::zlib, zlib_with_python("compress"), zlib_with_python("decompress")}};
  // NOLINTNEXTLINE(cert-env33-c): as above
  if (std::system("zstd --version >/dev/null 2>&1") == 0) {
    for (const std::string level : {"-1", "-19", "--fast=5", "--no-check"}) {
      programs.push_back({CompressionAlgorithm::zstd, "zstd -q -c " + level, "zstd -q -dc"});
    }
  } else {
    MESSAGE("zstd is not installed: not compared");
  }
  for (const Program& program : programs) {
    CAPTURE(program.compress);
    CompressionOptions options;
    options.algorithm = program.algorithm;
    Compressor compressor(options);
    for (const std::string& bytes : {std::string(), std::string("x"), text}) {
      const Chain frame =
          compressor.compress(Chain(Slice::immortal(std::string_view(bytes))), heap_allocator())
              .value_or_throw();
      CHECK((output_of(program.decompress, frame.to_string()) == bytes));
      const std::string theirs = output_of(program.compress, bytes);
      const auto back =
          compressor.decompress(Chain(Slice::immortal(std::string_view(theirs))), heap_allocator());
      REQUIRE(back.ok());
      CHECK((back.value() == bytes));
    }
  }
}
