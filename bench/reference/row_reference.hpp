// SPDX-License-Identifier: MIT
/// \file
/// The truth for one row of softmax attention, by the oracle of the tests, and how far a result is
/// from it in the library's own unit, u A (1 + B): u half the distance of 1 to the next number, A
/// the row's mean of |v|, B its largest |scale| sum |q| |k|. A result that rounds each operation
/// once has a ratio of a few units, whatever the scale of the data.
#pragma once

#include <algorithm>
#include <cmath>

#include "bench/entries/all_inputs.hpp"
#include "bench/measure/row.hpp"
#include "fovea/attention/attention.hpp"
#include "tests/support/oracle/softmax.hpp"

namespace bench {

using fovea::Index;
using fovea::View;

using fovea_test::OracleOperator;
using fovea_test::Wide;

/// Ratio that a float or double operator must not pass (BLAS level 3's customary limit).
inline constexpr double kErrorLimit = 16;

/// The truth for one row, and its unit A (1 + B).
template <class T>
using RowReference = fovea_test::OracleOut<T>;

/// The truth for a row of batch 0.
template <class T>
RowReference<T> softmax_row(const AllInputs<T>& in, const OracleOperator<T>& op, Index head,
                            Index row) {
  const fovea_test::OracleSequence sequence = fovea_test::oracle_sequences(in).front();
  return oracle_out(in, oracle_row(in, op, sequence, head, row));
}

/// The truth where a row sees all keys, whose logits are the products over sqrt(D).
struct SoftmaxOfAll {
  template <class T>
  RowReference<T> operator()(const AllInputs<T>& in, Index head, Index row) const {
    const auto all = [](const fovea_test::Pair&) { return true; };
    return softmax_row(in, OracleOperator<T>::of({}, all, in.q.width()), head, row);
  }
};

/// Rows of the sample: spread over the sequence, its first and last among them, others per head.
inline Index sampled_row(Index sample, Index samples, Index head, Index rows) {
  if (samples < 2 || rows < 2) return 0;
  const Index row = sample * (rows - 1) / (samples - 1);
  const Index gap = std::max<Index>(1, rows / samples);
  return std::max<Index>(0, row - (sample + 1 == samples && head == 0 ? 0 : head * 7 % gap));
}

/// Compares a row of batch 0 of out with the truth.
template <class T>
void judge(const RowReference<T>& want, const View<const T>& out, Index head, Index row,
           const Rounding& rounding, Error& error) {
  for (std::size_t c = 0; c < want.value.size(); ++c) {
    const auto got = static_cast<Wide<T>>(out(0, head, row, static_cast<Index>(c)));
    error.add(static_cast<double>(std::abs(got - want.value[c])),
              static_cast<double>(want.value[c]),
              static_cast<double>(fovea_test::kRoundoff<T> * want.gauge[c]), rounding);
  }
}

/// Compares `samples` rows of each head (of batch 0) of out with truth(in, head, row).
/// \param rounding of out, which is no error
template <class T, class Reference>
Error sampled_error(const AllInputs<T>& in, const View<const T>& out, Index samples,
                    const Reference& truth, const Rounding& rounding = {}) {
  Error error;
  for (Index head = 0; head < out.heads(); ++head) {
    for (Index s = 0; s < std::min(samples, out.rows()); ++s) {
      const Index row = sampled_row(s, std::min(samples, out.rows()), head, out.rows());
      judge(truth(in, head, row), out, head, row, rounding, error);
    }
  }
  return error;
}

}  // namespace bench
