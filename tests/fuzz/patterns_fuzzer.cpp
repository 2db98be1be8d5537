// SPDX-License-Identifier: MIT
// The fuzzer of patterns (preset `fuzz`).
#include "fuzz/libfuzzer.hpp"
#include "fuzz/patterns.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fovea_test::try_pattern({data, size});
  return 0;
}
