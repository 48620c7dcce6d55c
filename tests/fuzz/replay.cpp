// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Runs a fuzz target without a fuzzer: on every file of its corpus, and on random changes of them.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

Input changed(const Input& input, const Input& other, std::mt19937& generator) {
  Input result = input;
  for (std::uint32_t i = 1 + generator() % 4; i != 0 && !result.empty(); --i) {
    const auto at = static_cast<std::ptrdiff_t>(generator() % result.size());
    switch (generator() % 4) {
      case 0: result[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(generator()); break;
      case 1: result.erase(result.begin() + at); break;
      case 2: result.insert(result.begin() + at, static_cast<std::uint8_t>(generator())); break;
      default:
        result.erase(result.begin() + at, result.end());
        result.insert(result.end(), other.begin(), other.end());
        break;
    }
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s CORPUS CHANGES\n", argv[0]);
    return 2;
  }
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(argv[1])) names.push_back(file.path().string());
  std::ranges::sort(names);
  std::vector<Input> corpus;
  for (const std::string& name : names) {
    std::ifstream file(name, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: an empty corpus\n", argv[1]);
    return 1;
  }
  for (const Input& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());

  std::mt19937 generator;  // always the same changes
  const long changes = std::strtol(argv[2], nullptr, 10);
  for (long i = 0; i < changes; ++i) {
    const Input& other = corpus[generator() % corpus.size()];
    const Input input = changed(corpus[generator() % corpus.size()], other, generator);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu inputs and %ld changed ones\n", corpus.size(), changes);
}
