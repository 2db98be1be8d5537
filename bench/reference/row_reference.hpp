// SPDX-License-Identifier: MIT
/// \file
/// The truth for one row of softmax attention, by the oracle of the tests, and how far a result is
/// from it in the library's own unit, u A (1 + B): u half the distance of 1 to the next number, A
/// the row's mean of |v|, B its largest |scale| sum |q| |k|. A result that rounds each operation
/// once has a ratio of a few units, whatever the scale of the data. Compiled in one source, for
/// float and double.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "bench/measure/row.hpp"
#include "fovea/attention/attention.hpp"
#include "fovea/core/executor_ref.hpp"
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
                            Index row);

/// Every row sees all keys, and logits are the products over sqrt(D).
template <class T>
OracleOperator<T> softmax_of_all(Index width) {
  const auto all = [](const fovea_test::Pair&) { return true; };
  return OracleOperator<T>::of({}, all, width);
}

/// Rows of the sample: spread over the sequence, its first and last among them, others per head.
inline Index sampled_row(Index sample, Index samples, Index head, Index rows) {
  if (samples < 2 || rows < 2) return 0;
  const Index row = sample * (rows - 1) / (samples - 1);
  const Index gap = std::max<Index>(1, rows / samples);
  return std::max<Index>(0, row - (sample + 1 == samples && head == 0 ? 0 : head * 7 % gap));
}

/// All of a head, each once.
inline std::vector<Index> sampled_rows(Index samples, Index head, Index rows) {
  const Index count = std::min(samples, rows);
  std::vector<Index> all;
  for (Index s = 0; s < count; ++s) all.push_back(sampled_row(s, count, head, rows));
  return all;
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

/// The truth for a row of a head.
template <class T>
using RowTruth = fovea::FunctionRef<RowReference<T>(Index head, Index row)>;

/// Compares `samples` rows of each head (of batch 0) of out with the truth.
/// \param rounding of out, which is no error
template <class T>
Error sampled_error(const View<const T>& out, Index samples, const RowTruth<T>& truth,
                    const Rounding& rounding = {});

/// The same with softmax attention.
template <class T>
Error softmax_error(const OracleOperator<T>& op, const AllInputs<T>& in, const View<const T>& out,
                    Index samples, const Rounding& rounding = {});

}  // namespace bench
