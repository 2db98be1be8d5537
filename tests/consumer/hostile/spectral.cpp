// SPDX-License-Identifier: MIT
/// \file
/// Operators that need FFTW: the hidden state cross and the Fourier mixer, forward and backward.
#include <fovea/spectral.hpp>

#include "problem.hpp"

hostile::Result HOSTILE_UNIT(spectral)(int level, int threads);
hostile::Result HOSTILE_UNIT(spectral)(int level, int threads) {
  using namespace problem;
  Digest digest(level);
  fovea::ThreadPool pool(threads);
  const Shape shape{2, 1, 150, 24};
  const Numbers<float> f1(shape, 1), f2(shape, 2), d_out(shape, 3);
  Numbers<float> out(shape), d_f1(shape), d_f2(shape);
  const fovea::CrossInputs<float> inputs{f1, f2};
  fovea::HiddenStateCross{}.forward(inputs, out.to(), pool);
  fovea::HiddenStateCross{}.backward(inputs, d_out, {.f1 = d_f1.to(), .f2 = d_f2.to()}, pool);
  digest.add(out, d_f1, d_f2);
  fovea::FourierMixer{}.forward(f1, out.to(), pool);
  fovea::FourierMixer{}.backward(d_out, d_f1.to(), pool);
  digest.add(out, d_f1);
  return digest.result();
}
