// SPDX-License-Identifier: MIT
/// \file
/// The kinds of a trained model's heads, from their attention maps. Test:
/// tests/bench/measure/head_kinds_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/core/view.hpp"

namespace bench {

using fovea::Index;

/// A head is of the kind of the keys that have the largest share of its weight: those near the
/// diagonal, the first ones (the sinks of Xiao et al. 2023, where the weight goes that a softmax
/// cannot leave out), or all others.
enum class HeadKind { local, sink, distant };

inline constexpr HeadKind kHeadKinds[] = {HeadKind::local, HeadKind::sink, HeadKind::distant};

constexpr const char* name(HeadKind kind) {
  constexpr const char* names[] = {"local", "sink", "far"};
  return names[static_cast<int>(kind)];
}

inline constexpr Index kSinkKeys = 4;    ///< the first ones
inline constexpr Index kNearKeys = 64;   ///< on a side of a query, itself among them
inline constexpr Index kFirstRow = 256;  ///< rows before have few keys that are neither

/// Shares of the weights of full attention, mean over rows; their sum is 1.
struct WeightShares {
  double sink = 0;
  double nearby = 0;
  double distant = 0;

  HeadKind kind() const {
    if (nearby >= sink && nearby >= distant) return HeadKind::local;
    return sink >= distant ? HeadKind::sink : HeadKind::distant;
  }
};

/// The weights of row `row` of full attention. \param weights takes one for each key: [row + 1] if
/// causal \pre as many queries as keys
inline void full_weights(const AllInputs<float>& in, Index head, Index row, bool causal,
                         std::vector<double>& weights) {
  const Index key_head = head / (in.q.heads() / in.k.heads());
  const double scale = 1 / std::sqrt(static_cast<double>(in.q.width()));
  const Index keys = causal ? row + 1 : in.k.rows();
  weights.resize(static_cast<std::size_t>(keys));
  double largest = -HUGE_VAL;
  for (Index j = 0; j < keys; ++j) {
    double dot = 0;
    for (Index c = 0; c < in.q.width(); ++c) {
      dot +=
          static_cast<double>(in.q(0, head, row, c)) * static_cast<double>(in.k(0, key_head, j, c));
    }
    weights[static_cast<std::size_t>(j)] = scale * dot;
    largest = std::max(largest, scale * dot);
  }
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - largest);
  for (double& w : weights) w /= sum;
}

/// The shares of a head: of every `step`-th row from kFirstRow on, or of the last row if there are
/// none.
inline WeightShares weight_shares(const AllInputs<float>& in, Index head, bool causal = true,
                                  Index step = 8) {
  WeightShares shares;
  std::vector<double> weights;
  Index rows = 0;
  for (Index row = std::min(kFirstRow, in.q.rows() - 1); row < in.q.rows(); row += step, ++rows) {
    full_weights(in, head, row, causal, weights);
    for (std::size_t n = 0; n < weights.size(); ++n) {
      const auto j = static_cast<Index>(n);
      const bool is_near = std::abs(row - j) < kNearKeys;
      (j < kSinkKeys ? shares.sink : is_near ? shares.nearby : shares.distant) += weights[n];
    }
  }
  const auto count = static_cast<double>(rows);
  return {shares.sink / count, shares.nearby / count, shares.distant / count};
}

}  // namespace bench
