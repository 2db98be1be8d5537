// SPDX-License-Identifier: MIT
/// \file
/// An invalid call: it throws before anything is written, with a message that names the error.
#include <cstdio>
#include <fovea/fovea.hpp>
#include <stdexcept>

int main() {
  fovea::Tensor4<float> q(1, 8, 100, 64), k(1, 3, 100, 64), v(1, 3, 100, 64);
  q.setZero();
  k.setZero();
  v.setZero();
  try {
    const auto out = fovea::attend(fovea::FullAttention{}, q, k, v);
    std::printf("accepted: %td rows\n", out.dimension(2));
  } catch (const std::invalid_argument& error) {
    std::printf("%s\n", error.what());
    return 0;
  }
  return 1;
}
