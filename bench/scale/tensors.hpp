// SPDX-License-Identifier: MIT
/// \file
/// The tensors of the calls that fovea_scale measures, of a whole sequence or of a rank's rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "bench/io/gaussian.hpp"
#include "fovea/core/view.hpp"

namespace bench {

/// D of queries, keys and values.
inline constexpr Index kWidth = 64;
/// d of a sketch.
inline constexpr Index kSketchColumns = 8;
/// M, the dominant indices of a key of FSAT.
inline constexpr Index kDominant = 4;

/// Memory for numbers, taken when it is asked for.
template <class T>
class Buffer {
 public:
  T* of(Index count) {
    if (numbers_.empty()) numbers_.resize(static_cast<std::size_t>(count));
    return numbers_.data();
  }
  std::vector<T>& numbers() { return numbers_; }

 private:
  std::vector<T> numbers_;
};

/// All tensors of some rows. Each is made when it is asked for first: what nobody reads takes no
/// memory, and what is read as q, k and v lies apart, as it does in programs.
class Tensors {
 public:
  /// \param heads of q, k and v   \param rows of these tensors   \param sequence rows of the whole
  Tensors(Index heads, Index rows, Index sequence, std::uint32_t seed)
      : heads_(heads), rows_(rows), sequence_(sequence), seed_(seed) {}
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  Index sequence() const { return sequence_; }
  fovea::View<const float> q() { return random(q_, 1); }
  fovea::View<const float> k() { return random(k_, 4); }
  fovea::View<const float> v() { return random(v_, 5); }
  /// The first columns of q.
  fovea::View<const float> sketch() {
    return fovea::View<const float>(q().data(), {1, 1, rows_, kSketchColumns}, q().strides());
  }
  fovea::View<float> out() { return of(out_, heads_, kWidth); }
  fovea::View<float> lse() { return of(lse_, heads_, 1); }
  fovea::View<float> near_out() { return of(near_out_, heads_, kWidth); }
  fovea::View<Index> indices(Index keys) { return of(indices_, heads_, keys); }
  fovea::View<float> d_q() { return of(d_q_, heads_, kWidth); }
  fovea::View<float> d_k() { return of(d_k_, heads_, kWidth); }
  fovea::View<float> d_v() { return of(d_v_, heads_, kWidth); }
  fovea::View<float> d_dominant() { return of(d_dominant_, heads_, kDominant); }
  fovea::View<const float> d_out() { return random(d_out_, 2); }
  /// Places anywhere in the sequence.
  fovea::View<const float> dominant() {
    std::vector<float>& all = dominant_.numbers();
    if (all.empty()) {
      all = gaussians(3, seed_, heads_ * rows_ * kDominant);
      // The normal distribution function, nearly: indices are spread evenly.
      for (float& d : all) d = static_cast<float>(sequence_ - 1) / (1 + std::exp(-1.702F * d));
    }
    return of(dominant_, heads_, kDominant);
  }

 private:
  fovea::View<const float> random(Buffer<float>& buffer, std::uint32_t number) {
    if (buffer.numbers().empty()) {
      buffer.numbers() = gaussians(number, seed_, heads_ * rows_ * kWidth);
    }
    return of(buffer, heads_, kWidth);
  }
  template <class T>
  fovea::View<T> of(Buffer<T>& buffer, Index heads, Index width) const {
    return fovea::View<T>(buffer.of(heads * rows_ * width), {1, heads, rows_, width});
  }

  Index heads_;
  Index rows_;
  Index sequence_;
  std::uint32_t seed_;
  Buffer<float> q_, k_, v_, out_, lse_, near_out_, d_out_, d_q_, d_k_, d_v_, dominant_, d_dominant_;
  Buffer<Index> indices_;
};

}  // namespace bench
