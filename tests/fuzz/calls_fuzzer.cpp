// SPDX-License-Identifier: MIT
// The fuzzer of calls (preset `fuzz`).
#include "fuzz/calls.hpp"
#include "fuzz/libfuzzer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fovea_test::try_call({data, size});
  return 0;
}
