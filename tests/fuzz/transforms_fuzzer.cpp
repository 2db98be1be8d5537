// SPDX-License-Identifier: MIT
// The fuzzer of transforms (preset `fuzz`).
#include "fuzz/libfuzzer.hpp"
#include "fuzz/transforms.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fovea_test::try_transform({data, size});
  return 0;
}
