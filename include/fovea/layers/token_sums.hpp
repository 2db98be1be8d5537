// SPDX-License-Identifier: MIT
/// \file
/// Sums over all tokens, local or on other ranks, such as parameter gradients. They are added in
/// token order, so that their bits do not depend on how tokens are sharded.
#pragma once

#include "fovea/core/executor.hpp"
#include "fovea/layers/activation.hpp"
#include "fovea/layers/layer_check.hpp"
#include "fovea/patterns/pattern.hpp"
#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Some tokens: the same rows of some sequences, summed sequence by sequence.
struct TokenRange {
  Range sequences;  ///< of the batch
  Range rows;       ///< of the local ones
};

/// The range of all local tokens.
template <class T>
TokenRange all_tokens(const View<T>& x) {
  return {{0, x.batch()}, {0, x.rows()}};
}

/// Rows of a partial sum over tokens, a matrix.
template <class T>
struct SumRows {
  T* data;     ///< dense rows
  Range rows;  ///< of the matrix
};

/// Sums the contributions that `add` adds for every token. If the executor shards rows, rows of the
/// sum are passed from rank to rank, and all ranks receive the result.
/// \param x one of the summed activations
/// \param least_rows the minimum number of rows of the sum per message
/// \param add called as add(SumRows, TokenRange): adds some tokens to some rows, in order
template <class X, class T, class E, class Add>
void sum_over_tokens(const View<X>& x, RowMatrix<T>& sum, Index least_rows, E&& executor,
                     const Add& add) {
  if constexpr (ShardsRows<E>) {
    const Matrix<T> all = {sum.data(), sum.cols(), 1};
    executor.sum_over_tokens(
        x, all, sum.rows(), least_rows,
        [&](T* to, const Range& rows, Index sequence, const Range& tokens) {
          add(SumRows<T>{to, rows}, TokenRange{{sequence, sequence + 1}, tokens});
        });
  } else {
    add(SumRows<T>{sum.data(), {0, sum.rows()}}, all_tokens(x));
  }
}

/// If the executor shards rows, checks that a layer's options are equal on all ranks. A difference
/// is detected at their next message, or at the end.
/// \param layer its name \param options numbers, enums, lists of these, or structures of them
template <class E, class... X>
void add_to_collective_check(E&& executor, const char* layer, const X&... options) {
  if constexpr (ShardsRows<E>) executor.add_to_collective_check(layer, options...);
}

/// The sequence row of local row n.
template <class E>
Index row_of_sequence(const E& executor, Index n) {
  if constexpr (ShardsRows<E>) {
    return executor.row_of_sequence(n);
  } else {
    return n;
  }
}

/// The number of rows of the sequence that x is, or is a part of.
/// \throws std::invalid_argument unless x has the local rows
template <class X, class E>
Index rows_of_sequence(const View<X>& x, const E& executor) {
  if constexpr (ShardsRows<E>) {
    return executor.rows_of_sequence(x.rows());
  } else {
    return x.rows();
  }
}

/// Calls f(place, rows) for the local ranges of the sequence, where `place` is their first row in
/// x.
template <class X, class E, class F>
void for_each_range(const View<X>& x, const E& executor, const F& f) {
  if constexpr (ShardsRows<E>) {
    executor.for_each_range(f);
  } else {
    f(Index{0}, Range{0, x.rows()});
  }
}

/// Calls f(all) with activations that include tokens of other ranks: x itself, if all are local.
/// Arguments are those of the executor's member.
template <class T, class E, class Needs, class F>
void with_rows_of_others(const char* layer, const View<const T>& x, Index block, E&& executor,
                         const Needs& needs, const F& f) {
  if constexpr (ShardsRows<E>) {
    executor.with_rows_of_others(layer, x, block, needs, f);
  } else {
    f(x);
  }
}

/// An executor for replicated tensors, which every rank computes: they are not sharded, and their
/// tokens are summed once.
template <class E>
auto& executor_of_one(E& executor) {
  if constexpr (ShardsRows<E>) {
    return executor.executor();
  } else {
    return executor;
  }
}

/// The sum of of(b, n) over all tokens, n being the row of x, in their order.
template <class X, class E, class F>
double sum_of_tokens(const View<X>& x, E&& executor, const F& of) {
  RowMatrix<double> sum = RowMatrix<double>::Zero(1, 1);
  sum_over_tokens(x, sum, 1, executor, [&](const SumRows<double>& to, const TokenRange& tokens) {
    for (Index b = tokens.sequences.begin; b < tokens.sequences.end; ++b) {
      for (Index n = tokens.rows.begin; n < tokens.rows.end; ++n) *to.data += of(b, n);
    }
  });
  return sum(0, 0);
}

}  // namespace detail

FOVEA_NAMESPACE_END
