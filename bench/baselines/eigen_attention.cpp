// SPDX-License-Identifier: MIT
#include "bench/baselines/eigen_attention.hpp"

// This unit is compiled with -march=native, the others are not. Eigen's inline functions change
// with such flags (alignment of its memory, width of its packets) but keep their names, and the
// linker would keep one of each. Under another name they stay apart.
#define Eigen eigen_for_this_machine
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

namespace bench {

namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Rows = Eigen::Map<RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <class T>
using ConstRows = Eigen::Map<const RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

/// Softmax of the first `visible` elements of a row; the others become exactly 0 (Eigen's
/// exp(-inf) is a small number on some levels). Returns the sum of the weights.
template <class T, class Row>
T weights_of(Row row, Eigen::Index visible) {
  auto seen = row.head(visible).array();
  const T most = seen.maxCoeff();
  seen = (seen - most).exp();
  row.tail(row.size() - visible).setZero();
  return seen.sum();
}

}  // namespace

template <class T>
void eigen_attention(const EigenHead<T>& head, std::ptrdiff_t block_rows, T* scores) {
  const T scale = head.d == 0 ? T(1) : T(1) / std::sqrt(static_cast<T>(head.d));
  const ConstRows<T> q(head.q, head.n, head.d, Eigen::OuterStride<>(head.q_row));
  const ConstRows<T> k(head.k, head.n, head.d, Eigen::OuterStride<>(head.k_row));
  const ConstRows<T> v(head.v, head.n, head.dv, Eigen::OuterStride<>(head.v_row));
  Rows<T> out(head.out, head.n, head.dv, Eigen::OuterStride<>(head.out_row));
  for (std::ptrdiff_t first = 0; first < head.n; first += block_rows) {
    const std::ptrdiff_t count = std::min(block_rows, head.n - first);
    const std::ptrdiff_t keys = head.causal ? first + count : head.n;
    Eigen::Map<RowMajor<T>> s(scores, count, keys);
    s.noalias() = scale * (q.middleRows(first, count) * k.topRows(keys).transpose());
    Eigen::Map<RowMajor<T>> inverse_sums(scores + count * keys, count, 1);
    for (std::ptrdiff_t r = 0; r < count; ++r) {
      inverse_sums(r, 0) = T(1) / weights_of<T>(s.row(r), head.causal ? first + r + 1 : keys);
    }
    auto o = out.middleRows(first, count);
    o.noalias() = s * v.topRows(keys);
    o.array().colwise() *= inverse_sums.col(0).array();
  }
}

template void eigen_attention(const EigenHead<float>&, std::ptrdiff_t, float*);
template void eigen_attention(const EigenHead<double>&, std::ptrdiff_t, double*);

}  // namespace bench
