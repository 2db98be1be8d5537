// SPDX-License-Identifier: MIT
// The fuzzer of decoders (preset `fuzz`).
#include "fuzz/decoders.hpp"
#include "fuzz/libfuzzer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fovea_test::try_decoder({data, size});
  return 0;
}
