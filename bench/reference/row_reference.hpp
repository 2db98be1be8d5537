// SPDX-License-Identifier: MIT
/// \file
/// The truth for one row of softmax attention in a wider type, and how far a result is from it in
/// the library's own unit, u A (1 + B): u half the distance of 1 to the next number, A the row's
/// mean of |v|, B its largest |scale| sum |q| |k|. A result that rounds each operation once has a
/// ratio of a few units, whatever the scale of the data.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "bench/measure/row.hpp"
#include "fovea/attention/attention.hpp"

namespace bench {

using fovea::Index;
using fovea::View;

/// What the truth for results of T is computed in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;

/// Ratio that a float or double operator must not pass (BLAS level 3's customary limit).
inline constexpr double kErrorLimit = 16;

/// Weights below it have fewer digits than others in T, or are 0: units take them for as large.
template <class T>
inline constexpr Wide<T> kFaintWeight = Wide<T>{std::numeric_limits<T>::min()} /
                                        std::numeric_limits<T>::epsilon() * 2;

/// The truth for one row.
template <class T>
struct RowReference {
  std::vector<Wide<T>> out;   // [Dv]
  std::vector<Wide<T>> unit;  // [Dv] A (1 + B)
};

/// Logits as the products make them.
struct PlainLogit {
  template <class W>
  W operator()(Index, W z) const {
    return z;
  }
};

/// Softmax over the keys j with visible(j) of the logits logit(j, <q, k_j> / sqrt(D)), of a row of
/// batch 0.
template <class T, class Visible, class Logit = PlainLogit>
RowReference<T> softmax_row(const AllInputs<T>& in, Index head, Index row, const Visible& visible,
                            const Logit& logit = {}) {
  using W = Wide<T>;
  const Index key_head = head / (in.q.heads() / in.k.heads());
  const W scale = 1 / std::sqrt(static_cast<W>(std::max<Index>(1, in.q.width())));
  std::vector<W> logits;
  std::vector<Index> keys;
  W most = -std::numeric_limits<W>::infinity();
  W gauge = 0;
  for (Index j = 0; j < in.k.rows(); ++j) {
    if (!visible(j)) continue;
    W dot = 0;
    W size = 0;
    for (Index c = 0; c < in.q.width(); ++c) {
      const W term =
          static_cast<W>(in.q(0, head, row, c)) * static_cast<W>(in.k(0, key_head, j, c));
      dot += term;
      size += std::abs(term);
    }
    keys.push_back(j);
    logits.push_back(logit(j, scale * dot));
    most = std::max(most, logits.back());
    gauge = std::max(gauge, scale * size + std::abs(logits.back() - scale * dot));
  }
  const auto width = static_cast<std::size_t>(in.v.width());
  RowReference<T> truth{std::vector<W>(width, 0), std::vector<W>(width, 0)};
  W total = 0;
  for (const W logit_of_key : logits) total += std::exp(logit_of_key - most);
  for (std::size_t t = 0; t < keys.size(); ++t) {
    const W weight = std::exp(logits[t] - most) / total;
    for (std::size_t c = 0; c < width; ++c) {
      const W value = in.v(0, key_head, keys[t], static_cast<Index>(c));
      truth.out[c] += weight * value;
      truth.unit[c] += (weight + kFaintWeight<T>)*std::abs(value) * (1 + gauge);
    }
  }
  return truth;
}

/// Rows of the sample: spread over the sequence, its first and last among them, others per head.
inline Index sampled_row(Index sample, Index samples, Index head, Index rows) {
  if (samples < 2 || rows < 2) return 0;
  const Index row = sample * (rows - 1) / (samples - 1);
  const Index gap = std::max<Index>(1, rows / samples);
  return std::max<Index>(0, row - (sample + 1 == samples && head == 0 ? 0 : head * 7 % gap));
}

/// Compares `samples` rows of each head (of batch 0) of out with truth(in, head, row).
/// \param rounding of out, which is no error
template <class T, class Reference>
Error sampled_error(const AllInputs<T>& in, const View<const T>& out, Index samples,
                    const Reference& truth, const Rounding& rounding = {}) {
  constexpr double u = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  Error error;
  for (Index head = 0; head < out.heads(); ++head) {
    for (Index s = 0; s < std::min(samples, out.rows()); ++s) {
      const Index row = sampled_row(s, std::min(samples, out.rows()), head, out.rows());
      const RowReference<T> want = truth(in, head, row);
      for (std::size_t c = 0; c < want.out.size(); ++c) {
        const auto got = static_cast<Wide<T>>(out(0, head, row, static_cast<Index>(c)));
        error.add(static_cast<double>(std::abs(got - want.out[c])),
                  static_cast<double>(want.out[c]), u * static_cast<double>(want.unit[c]),
                  rounding);
      }
    }
  }
  return error;
}

}  // namespace bench
