// SPDX-License-Identifier: MIT
// The fuzzer of operators (preset `fuzz`).
#include "fuzz/libfuzzer.hpp"
#include "fuzz/operators.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fovea_test::try_operator({data, size});
  return 0;
}
