// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention as spec.md sections 1 and 2 write it: loops over float64 (long double for
/// double inputs), nothing clever. Visible NaN and infinity follow IEEE rules by themselves.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/attention/attention.hpp"
#include "support/compare.hpp"

namespace fovea_test {

/// What an operator should give.
template <class T>
struct Expected {
  Reference<T> out;  // [B, Hq, Nq, Dv], gauge A (1 + B)
  Reference<T> lse;  // [B, Hq, Nq, 1], gauge 1 + B + |lse|
};

/// The logits of one row: s_j over all keys j, and B = max_j |scale| sum |q||k| over visible ones.
template <class T>
struct OracleLogits {
  std::vector<Wide<T>> s;
  std::vector<Index> keys;  // the visible j
  Wide<T> largest = 0;      // B
};

template <class T, class Sees>
OracleLogits<T> oracle_logits(const fovea::Inputs<T>& in, Wide<T> scale, Index b, Index h, Index i,
                              Sees&& sees) {
  OracleLogits<T> row;
  const Index key_head = h / (in.q.heads() / in.k.heads());
  for (Index j = 0; j < in.k.rows(); ++j) {
    row.s.push_back(0);
    if (!sees(j)) continue;
    row.keys.push_back(j);
    Wide<T> dot = 0;
    Wide<T> magnitude = 0;
    for (Index c = 0; c < in.q.width(); ++c) {
      const Wide<T> product = Wide<T>{in.q(b, h, i, c)} * Wide<T>{in.k(b, key_head, j, c)};
      dot += product;
      magnitude += std::abs(product);
    }
    row.s.back() = scale * dot;
    row.largest = std::max(row.largest, std::abs(scale) * magnitude);
  }
  return row;
}

/// \param visible whether query row i of head h of batch b sees key j, key lengths apart:
///                visible(b, h, i, j)
template <class T, class Visible>
Expected<T> softmax_oracle(const fovea::Inputs<T>& in, Wide<T> scale, Visible&& visible) {
  using W = Wide<T>;
  Expected<T> expected;
  expected.out.shape = {in.q.batch(), in.q.heads(), in.q.rows(), in.v.width()};
  expected.lse.shape = {in.q.batch(), in.q.heads(), in.q.rows(), 1};
  for_each_index(expected.lse.shape, [&](Index b, Index h, Index i, Index) {
    const Index length =
        in.key_lengths.empty() ? in.k.rows() : in.key_lengths[static_cast<std::size_t>(b)];
    const OracleLogits<T> row = oracle_logits(
        in, scale, b, h, i, [&](Index j) { return j < length && visible(b, h, i, j); });

    W most = -std::numeric_limits<W>::infinity();
    for (const Index j : row.keys) most = std::max(most, row.s[as_size(j)]);
    // Logits of -inf alone: exp(-inf) = 0, so lse = log 0 and the weights are 0 / 0.
    const W shift = most == -std::numeric_limits<W>::infinity() ? 0 : most;
    W sum = 0;
    for (const Index j : row.keys) sum += std::exp(row.s[as_size(j)] - shift);
    const W lse = shift + std::log(sum);  // log 0 = -inf for a row without keys
    expected.lse.value.push_back(lse);
    expected.lse.gauge.push_back(1 + row.largest + std::abs(lse));

    std::vector<W> p;
    for (const Index j : row.keys) p.push_back(std::exp(row.s[as_size(j)] - shift) / sum);
    const Index key_head = h / (in.q.heads() / in.k.heads());
    for (Index c = 0; c < in.v.width(); ++c) {
      W out = 0;
      W magnitude = 0;
      for (std::size_t n = 0; n < p.size(); ++n) {
        const W term = p[n] * W{in.v(b, key_head, row.keys[n], c)};
        out += term;
        magnitude += std::abs(term);
      }
      expected.out.value.push_back(out);
      expected.out.gauge.push_back(magnitude * (1 + row.largest));
    }
  });
  return expected;
}

}  // namespace fovea_test
