// SPDX-License-Identifier: MIT
// The fuzzer of the checks of arguments (preset `fuzz`).
#include "fuzz/arguments.hpp"
#include "fuzz/libfuzzer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fovea_test::try_arguments({data, size});
  return 0;
}
