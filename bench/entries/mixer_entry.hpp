// SPDX-License-Identifier: MIT
/// \file
/// Entries of the Fourier mixer, whose sequences x [N, D] are the heads of q, and of FFTW's
/// two-dimensional real transform, of which the real part is used.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/entries/cross_entry.hpp"
#include "fovea/spectral/fftw.hpp"
#include "fovea/spectral/fftw_lock.hpp"
#include "fovea/spectral/fourier_mixer.hpp"

namespace bench {

/// The heads of a batch as sequences of one head.
template <class T>
View<T> as_sequences(const View<T>& x) {
  const Shape& s = x.shape();
  const Shape& strides = x.strides();
  return {x.data(), {s[1], 1, s[2], s[3]}, {strides[1], s[2] * s[3], strides[2], strides[3]}};
}

/// The mixer of every head.
class HeadMixer {
 public:
  HeadMixer(Index /*rows*/, Index /*width*/, FftPlanning planning) : op_({planning}) {}
  void run(const View<const float>& x, const View<float>& out, ThreadPool& pool) const {
    op_.forward(as_sequences(x), as_sequences(out), pool);
  }
  static Index workspace_bytes(const AttentionShape& s, Index workers) {
    return fovea::FourierMixer{}.workspace_bytes<float>(s.keys, s.width, workers);
  }

 private:
  fovea::FourierMixer op_;
};

/// A real transform of [N, D] by FFTW, and the real part of all of its spectrum, of one head.
class WholeTransform {
 public:
  WholeTransform(Index rows, Index width, FftPlanning planning)
      : rows_(rows),
        width_(width),
        real_(rows * width, sizeof(float)),
        complex_(rows * (width / 2 + 1), 2 * sizeof(float)) {
    const unsigned flags = planning == FftPlanning::estimate ? FFTW_ESTIMATE : FFTW_MEASURE;
    const fovea::FftwLock lock;
    plan_ = fftwf_plan_dft_r2c_2d(static_cast<int>(rows), static_cast<int>(width),
                                  real_.data<float>(), spectrum(), flags);
  }
  WholeTransform(const WholeTransform&) = delete;
  WholeTransform& operator=(const WholeTransform&) = delete;
  ~WholeTransform() {
    const fovea::FftwLock lock;
    fftwf_destroy_plan(plan_);
  }

  /// \param x, out dense and aligned as a Workspace is
  void run(const View<const float>& x, const View<float>& out, ThreadPool& /*pool*/) {
    fftwf_execute_dft_r2c(plan_, const_cast<float*>(x.data()), spectrum());
    const Index half = width_ / 2 + 1;
    for (Index k = 0; k < rows_; ++k) {
      const fftwf_complex* const own = spectrum() + k * half;
      const fftwf_complex* const mirror = spectrum() + (k == 0 ? 0 : rows_ - k) * half;
      for (Index c = 0; c < half; ++c) out(0, 0, k, c) = own[c][0];
      for (Index c = half; c < width_; ++c) out(0, 0, k, c) = mirror[width_ - c][0];
    }
  }
  static Index workspace_bytes(const AttentionShape& s, Index /*workers*/) {
    return s.keys * (2 * s.width + 2) * Index{sizeof(float)};
  }

 private:
  fftwf_complex* spectrum() { return reinterpret_cast<fftwf_complex*>(complex_.data<float>()); }

  Index rows_;
  Index width_;
  fovea::Workspace real_;
  fovea::Workspace complex_;
  fftwf_plan plan_ = nullptr;
};

/// Element [k, c] of the mixer of a head, and of its adjoint.
inline double mixed_element(const View<const float>& x, Index head, Index k, Index c) {
  constexpr double turn = 6.283185307179586477;
  const auto part = [](Index a, Index b, Index n) {
    return static_cast<double>(a * b % n) / static_cast<double>(n);
  };
  double sum = 0;
  for (Index n = 0; n < x.rows(); ++n) {
    const double of_row = part(n, k, x.rows());
    for (Index d = 0; d < x.width(); ++d) {
      sum += double{x(0, head, n, d)} * std::cos(turn * (of_row + part(d, c, x.width())));
    }
  }
  return sum;
}

/// A few elements, spread over the heads; the unit is that of transforms: u lg(N D) |x|.
inline Error mixer_error(const View<const float>& x, const View<float>& out) {
  Error error;
  for (Index t = 0; t < 8; ++t) {
    const Index head = t % x.heads();
    double squares = 0;
    for (Index n = 0; n < x.rows(); ++n) {
      for (Index d = 0; d < x.width(); ++d) {
        squares += double{x(0, head, n, d)} * double{x(0, head, n, d)};
      }
    }
    const double unit =
        0x1p-24 * std::log2(static_cast<double>(x.rows() * x.width())) * std::sqrt(squares);
    const Index k = t * (x.rows() - 1) / 7;
    const Index c = (t * 37 + 1) % x.width();
    error.add(std::abs(double{out(0, head, k, c)} - mixed_element(x, head, k, c)), unit);
  }
  return error;
}

/// \tparam Mixer the operator or its peer
template <class Mixer>
Entry mixer_entry(Names names, FftPlanning planning) {
  const std::vector<Family> families = {{.width = 512, .lengths = {1024, 4096}}};
  Entry entry = detail::cross_entry_of(std::move(names), families, 0);
  entry.own_flops = [](const AttentionShape& s) {
    const auto size = static_cast<double>(s.keys * s.width);
    return static_cast<double>(s.query_heads) * 2.5 * size * std::log2(size);
  };
  entry.obstacle = one_width_for("mixer");
  entry.f32 = {[=](const AllInputs<float>& in, const View<float>& out) {
                 const auto mixer = std::make_shared<Mixer>(in.q.rows(), in.q.width(), planning);
                 return Prepared{[=](ThreadPool& pool) { mixer->run(in.q, out, pool); },
                                 [=](Index) { return mixer_error(in.q, out); }};
               },
               Mixer::workspace_bytes};
  return entry;
}

}  // namespace bench
