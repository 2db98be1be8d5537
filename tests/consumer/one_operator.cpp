// SPDX-License-Identifier: MIT
/// \file
/// A user's program with the header of one operator and raw memory.
#include <array>
#include <cstdio>
#include <fovea/attention/full.hpp>

int main() {
  const std::array<float, 2> q = {0, 0}, k = {1, 2}, v = {3, 5};
  std::array<float, 2> out{};
  const fovea::Shape shape = {1, 1, 2, 1};
  fovea::FullAttention{{.causal = true}}.forward(
      {.q = fovea::View<const float>(q.data(), shape),
       .k = fovea::View<const float>(k.data(), shape),
       .v = fovea::View<const float>(v.data(), shape)},
      fovea::View<float>(out.data(), shape));
  std::printf("%g %g\n", double{out[0]}, double{out[1]});
  return out[0] == 3 && out[1] == 4 ? 0 : 1;
}
