// SPDX-License-Identifier: MIT
/// \file
/// Entries of the Fourier mixer, whose sequences x [N, D] are the heads of q.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bench/entries/cross_entry.hpp"
#include "fovea/spectral/fourier_mixer.hpp"

namespace bench {

/// The heads of a batch as sequences of one head.
template <class T>
View<T> as_sequences(const View<T>& x) {
  const Shape& s = x.shape();
  const Shape& strides = x.strides();
  return {x.data(), {s[1], 1, s[2], s[3]}, {strides[1], s[2] * s[3], strides[2], strides[3]}};
}

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

inline Entry mixer_entry(Names names, FftPlanning planning) {
  const fovea::FourierMixer op({planning});
  const std::vector<Family> families = {{.width = 512, .lengths = {1024, 4096}}};
  Entry entry = detail::cross_entry_of(std::move(names), families, 0);
  entry.own_flops = [](const AttentionShape& s) {
    const auto size = static_cast<double>(s.keys * s.width);
    return static_cast<double>(s.query_heads) * 2.5 * size * std::log2(size);
  };
  entry.obstacle = one_width_for("mixer");
  entry.f32 = {[op](const AllInputs<float>& in, const View<float>& out) {
                 return Prepared{[=](ThreadPool& pool) {
                                   op.forward(as_sequences(in.q), as_sequences(out), pool);
                                 },
                                 [=](Index) { return mixer_error(in.q, out); }};
               },
               [op](const AttentionShape& s, Index workers) {
                 return op.workspace_bytes<float>(s.keys, s.width, workers);
               }};
  return entry;
}

}  // namespace bench
