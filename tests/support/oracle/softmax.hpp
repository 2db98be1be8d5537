// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention as MATHS.md, section 2 writes it, and the gauges of tests/README.md, "How
/// results are judged": A = sum p |v|, B of softmax_row.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/oracle/softmax_row.hpp"
#include "support/reference.hpp"

namespace fovea_test {

/// The expected results of an operator.
template <class T>
struct Expected {
  Reference<T> out;  // [B, Hq, Nq, Dv], gauge A (1 + B)
  Reference<T> lse;  // [B, Hq, Nq, 1], gauge 1 + B + |lse|
};

/// A reference of zeros with gauges 0.
template <class T>
Reference<T> zero_reference(const Shape& shape) {
  const std::vector<Wide<T>> zeros(as_size(size_of(shape)));
  return {shape, zeros, zeros};
}

/// The place of an element in a reference.
constexpr std::size_t place_of(const Shape& shape, Index b, Index h, Index n, Index d) {
  return as_size(((b * shape[1] + h) * shape[2] + n) * shape[3] + d);
}

/// One row of an output.
template <class T>
struct OracleOut {
  std::vector<Wide<T>> value;  // [Dv]
  std::vector<Wide<T>> gauge;  // the same
};

template <class T>
OracleOut<T> oracle_out(const bench::AllInputs<T>& in, const OracleRow<T>& row) {
  using W = Wide<T>;
  OracleOut<T> out;
  for (Index c = 0; c < in.v.width(); ++c) {
    W sum = 0;
    W magnitude = 0;
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      const W term = row.kept[n] * W{in.v(row.batch, row.key_head, row.keys[n], c)};
      sum += row.p[n] * term;
      magnitude += row.size[n] * std::abs(term);
    }
    out.value.push_back(sum);
    out.gauge.push_back(magnitude * (1 + row.largest));
  }
  return out;
}

/// Writes a row and its lse.
template <class T>
void put_row(Expected<T>& to, const OracleRow<T>& row, const OracleOut<T>& out) {
  const std::size_t at = place_of(to.lse.shape, row.batch, row.head, row.query, 0);
  to.lse.value[at] = row.lse;
  to.lse.gauge[at] = 1 + row.largest + std::abs(row.lse);
  const auto first = static_cast<Index>(at) * to.out.shape[3];
  std::ranges::copy(out.value, to.out.value.begin() + first);
  std::ranges::copy(out.gauge, to.out.gauge.begin() + first);
}

template <class T>
Expected<T> softmax_oracle(const bench::AllInputs<T>& in, const OracleOperator<T>& op) {
  const Index width = in.v.width();
  Expected<T> expected{zero_reference<T>({in.q.batch(), in.q.heads(), in.q.rows(), width}),
                       zero_reference<T>({in.q.batch(), in.q.heads(), in.q.rows(), 1})};
  for_each_oracle_row(
      in, op, [&](const OracleRow<T>& row) { put_row(expected, row, oracle_out(in, row)); });
  return expected;
}

/// Without options. \param visible whether query row i of head h of batch b sees key j, key lengths
/// apart: visible(b, h, i, j)
template <class T, class Visible>
Expected<T> softmax_oracle(const bench::AllInputs<T>& in, Wide<T> scale, Visible&& visible) {
  const ReferenceMask reference_mask = [&](const Pair& p) { return visible(p.b, p.h, p.row, p.j); };
  return softmax_oracle(in, OracleOperator<T>{scale, {}, reference_mask});
}

}  // namespace fovea_test
