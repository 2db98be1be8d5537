// SPDX-License-Identifier: MIT
/// \file
/// The two steps of Luna attention in the conformance suite.
#include "attention/cases.hpp"

namespace fovea_test {

template <class T>
std::vector<Case<T>> luna_cases() {
  const fovea::LunaAttention luna;
  return {softmax_case<T>("luna_pack", luna.pack(), all_pairs),
          softmax_case<T>("luna_unpack", luna.unpack(), all_pairs)};
}
template std::vector<Case<float>> luna_cases();
template std::vector<Case<double>> luna_cases();

}  // namespace fovea_test
