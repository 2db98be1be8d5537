// SPDX-License-Identifier: MIT
// The fuzzer of the readers of model files (preset `fuzz`): libFuzzer changes small files of each
// kind, as far as that reaches other code, and address and undefined behaviour are watched.
#include <unistd.h>

#include "fuzz/model_files.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

/// Begins with a file of each kind now and then, and otherwise changes what there is.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  static const std::vector<std::string> seeds =
      fovea_test::model_file_seeds("fuzzed." + std::to_string(::getpid()));
  if (size > 1 && seed % 256 != 0) return LLVMFuzzerMutate(data, size, most);
  const std::string& begun = seeds[seed / 256 % seeds.size()];
  if (begun.size() > most) return LLVMFuzzerMutate(data, size, most);
  return LLVMFuzzerMutate(data, begun.copy(reinterpret_cast<char*>(data), most), most);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fovea_test::read_model_file(std::as_bytes(std::span(data, size)));
  return 0;
}
