// SPDX-License-Identifier: MIT
/// \file
/// Baselines for the cross of hidden states, with the same FFTW: a straightforward cross on
/// matrices of rows, and only the transforms of its definition.
#pragma once

#include <algorithm>

#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/spectral/fftw.hpp"
#include "fovea/spectral/fftw_lock.hpp"
#include "fovea/spectral/transform_size.hpp"

namespace bench {

using fovea::Index;
using fovea::View;

/// A plan of FFTW for real numbers, planned by measuring.
class RealPlan {
 public:
  /// Of `count` sequences of n numbers, whose elements are `stride` apart and which begin `step`
  /// apart. \param real destroyed
  static RealPlan forward(Index n, Index count, Index stride, Index step, float* real,
                          float* complex) {
    const fovea::FftwLock lock;
    const int size = static_cast<int>(n);
    return RealPlan(fftwf_plan_many_dft_r2c(
        1, &size, static_cast<int>(count), real, nullptr, static_cast<int>(stride),
        static_cast<int>(step), reinterpret_cast<fftwf_complex*>(complex), nullptr,
        static_cast<int>(stride), static_cast<int>(stride == 1 ? n / 2 + 1 : step), FFTW_MEASURE));
  }
  /// The way back; destroys what it transforms.
  static RealPlan inverse(Index n, Index count, Index stride, Index step, float* complex,
                          float* real) {
    const fovea::FftwLock lock;
    const int size = static_cast<int>(n);
    return RealPlan(fftwf_plan_many_dft_c2r(
        1, &size, static_cast<int>(count), reinterpret_cast<fftwf_complex*>(complex), nullptr,
        static_cast<int>(stride), static_cast<int>(stride == 1 ? n / 2 + 1 : step), real, nullptr,
        static_cast<int>(stride), static_cast<int>(step), FFTW_MEASURE));
  }
  RealPlan(const RealPlan&) = delete;
  RealPlan& operator=(const RealPlan&) = delete;
  ~RealPlan() {
    const fovea::FftwLock lock;
    fftwf_destroy_plan(plan_);
  }

  void forward(float* real, float* complex) const {
    fftwf_execute_dft_r2c(plan_, real, reinterpret_cast<fftwf_complex*>(complex));
  }
  void inverse(float* complex, float* real) const {
    fftwf_execute_dft_c2r(plan_, reinterpret_cast<fftwf_complex*>(complex), real);
  }

 private:
  explicit RealPlan(fftwf_plan plan) : plan_(plan) {}

  fftwf_plan plan_;
};

/// The cross of dense [1, 1, L, C] as its equations are written: matrices padded to 2L rows,
/// transforms along the columns with stride C, the product, the inverse of full length, the merge.
class StridedCross {
 public:
  StridedCross(Index length, Index channels)
      : length_(length),
        channels_(channels),
        padded_(fovea::good_multiple(2 * length, 2)),
        real_(padded_ * channels, sizeof(float)),
        first_((padded_ + 2) * channels, sizeof(float)),
        second_((padded_ + 2) * channels, sizeof(float)),
        forward_(RealPlan::forward(padded_, channels, channels, 1, real_.data<float>(),
                                   first_.data<float>())),
        inverse_(RealPlan::inverse(padded_, channels, channels, 1, first_.data<float>(),
                                   real_.data<float>())) {}

  void run(const View<const float>& f1, const View<const float>& f2, const View<float>& out) {
    transform(f1, first_);
    transform(f2, second_);
    float* const a = first_.data<float>();
    const float* const b = second_.data<float>();
    const float scale = 1 / static_cast<float>(padded_);
    for (Index i = 0; i < (padded_ + 2) * channels_; i += 2) {
      const float re = a[i] * b[i] - a[i + 1] * b[i + 1];
      const float im = a[i] * b[i + 1] + a[i + 1] * b[i];
      a[i] = re * scale;
      a[i + 1] = im * scale;
    }
    inverse_.inverse(a, real_.data<float>());
    const float* const c0 = real_.data<float>();
    const Index row = channels_;
    for (Index i = 0; i < length_; ++i) {
      for (Index c = 0; c < row; ++c) {
        out.data()[i * row + c] = c0[2 * i * row + c] + c0[(2 * i + 1) * row + c] -
                                  f1.data()[i * row + c] * f2.data()[i * row + c];
      }
    }
    std::fill_n(out.data() + (length_ - 1) * row, row, 0.0F);
  }

 private:
  void transform(const View<const float>& f, fovea::Workspace& spectrum) {
    float* const real = real_.data<float>();
    std::copy_n(f.data(), length_ * channels_, real);
    std::fill_n(real + length_ * channels_, (padded_ - length_) * channels_, 0.0F);
    forward_.forward(real, spectrum.data<float>());
  }

  Index length_;
  Index channels_;
  Index padded_;
  fovea::Workspace real_;
  fovea::Workspace first_;
  fovea::Workspace second_;
  RealPlan forward_;
  RealPlan inverse_;
};

/// Two transforms and one inverse, of length 2L, of each of C channels: nothing else, on contiguous
/// channels, as many as fit into a second-level cache.
class TransformsAlone {
 public:
  TransformsAlone(Index length, Index channels)
      : channels_(channels),
        padded_(fovea::good_multiple(2 * length, 2)),
        block_(block_of(padded_, channels)),
        real_(block_ * padded_, sizeof(float)),
        back_(block_ * padded_, sizeof(float)),
        complex_(block_ * (padded_ + 2), sizeof(float)),
        forward_(RealPlan::forward(padded_, block_, 1, padded_, real_.data<float>(),
                                   complex_.data<float>())),
        inverse_(RealPlan::inverse(padded_, block_, 1, padded_, complex_.data<float>(),
                                   back_.data<float>())) {
    std::fill_n(real_.data<float>(), block_ * padded_, 1.0F);
  }

  void run() {
    for (Index c = 0; c < channels_; c += block_) {
      forward_.forward(real_.data<float>(), complex_.data<float>());
      forward_.forward(real_.data<float>(), complex_.data<float>());
      inverse_.inverse(complex_.data<float>(), back_.data<float>());
    }
  }

 private:
  /// A power of two, so that it divides common numbers of channels; 1 MiB in all, or one channel.
  static Index block_of(Index padded, Index channels) {
    Index block = 1;
    while (2 * block <= channels && 2 * block * 3 * padded <= (Index{1} << 18)) block *= 2;
    return block;
  }

  Index channels_;
  Index padded_;
  Index block_;
  fovea::Workspace real_;
  fovea::Workspace back_;
  fovea::Workspace complex_;
  RealPlan forward_;
  RealPlan inverse_;
};

}  // namespace bench
