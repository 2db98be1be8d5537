// SPDX-License-Identifier: MIT
/// \file
/// A user's program with the Fourier headers, and a known result.
#include <cstdio>
#include <fovea/core.hpp>
#include <fovea/core/eigen.hpp>
#include <fovea/spectral.hpp>

int main() {
  Eigen::Tensor<float, 3, Eigen::RowMajor> f1(1, 2, 1), f2(1, 2, 1), out(1, 2, 1);  // [B, L, C]
  f1.setValues({{{1}, {2}}});
  f2.setValues({{{3}, {5}}});
  fovea::ThreadPool pool(2);
  const fovea::CrossInputs<float> in{fovea::channels_view(f1), fovea::channels_view(f2)};
  fovea::HiddenStateCross().forward(in, fovea::channels_view(out), pool);
  std::printf("%g %g\n", double{out(0, 0, 0)}, double{out(0, 1, 0)});
  const float error = out(0, 0, 0) - (3 + (5 + 6) - 3);
  return error * error < 1e-8F && out(0, 1, 0) == 0 ? 0 : 1;
}
