// SPDX-License-Identifier: MIT
#include "bench/reference/row_reference.hpp"

namespace bench {

template <class T>
RowReference<T> softmax_row(const AllInputs<T>& in, const OracleOperator<T>& op, Index head,
                            Index row) {
  const fovea_test::OracleSequence sequence = fovea_test::oracle_sequences(in).front();
  return oracle_out(in, oracle_row(in, op, sequence, head, row));
}

template <class T>
Error sampled_error(const View<const T>& out, Index samples, const RowTruth<T>& truth,
                    const Rounding& rounding) {
  Error error;
  for (Index head = 0; head < out.heads(); ++head) {
    for (const Index row : sampled_rows(samples, head, out.rows())) {
      judge(truth(head, row), out, head, row, rounding, error);
    }
  }
  return error;
}

template <class T>
Error softmax_error(const OracleOperator<T>& op, const AllInputs<T>& in, const View<const T>& out,
                    Index samples, const Rounding& rounding) {
  const auto truth = [&](Index head, Index row) { return softmax_row(in, op, head, row); };
  return sampled_error<T>(out, samples, truth, rounding);
}

template RowReference<float> softmax_row(const AllInputs<float>&, const OracleOperator<float>&,
                                         Index, Index);
template Error sampled_error(const View<const float>&, Index, const RowTruth<float>&,
                             const Rounding&);
template Error softmax_error(const OracleOperator<float>&, const AllInputs<float>&,
                             const View<const float>&, Index, const Rounding&);
#if !defined(FOVEA_BENCH_FLOAT_ONLY)
template RowReference<double> softmax_row(const AllInputs<double>&, const OracleOperator<double>&,
                                          Index, Index);
template Error sampled_error(const View<const double>&, Index, const RowTruth<double>&,
                             const Rounding&);
template Error softmax_error(const OracleOperator<double>&, const AllInputs<double>&,
                             const View<const double>&, Index, const Rounding&);
#endif

}  // namespace bench
