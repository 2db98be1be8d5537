// SPDX-License-Identifier: MIT
/// \file
/// Columns of W2 and b2 of the dense Synthesizer as keys, and their gradients.
#pragma once

#include <span>

#include "fovea/attention/synthesizer/softmax.hpp"
#include "fovea/kernels/layers/layers.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Keys that are columns of W2 and b2, copied to its own memory.
template <class T>
class KeyColumns {
 public:
  KeyColumns() = default;

  /// Allocates memory for that many keys.
  /// \param w2, b2 checked; empty if there is no key   \param heads Hk \param hidden M
  /// \throws std::bad_alloc
  KeyColumns(const View<const T>& w2, const View<const T>& b2, Index heads, Index hidden,
             Index count, ExecutorRef::Memory memory)
      : w2_(w2),
        b2_(b2),
        shape_({w2.batch(), heads, count, hidden + 1}),
        memory_(memory.take(w2.batch() * heads * count, row_of(hidden) * Index{sizeof(T)})) {}

  /// Elements of a row of keys: M + 1, padded.
  static Index row_of(Index hidden) { return padded_size(hidden + 1); }
  /// Such rows in `memory` as a tensor of that shape.
  static View<T> rows_of(Workspace& memory, const Shape& shape) {
    const Index row = row_of(shape[3] - 1);
    return {memory.data<T>(), shape, {shape[1] * shape[2] * row, shape[2] * row, row, 1}};
  }

  /// Bytes of the memory.
  Index size_bytes() const { return memory_.size_bytes(); }

  /// Copies the columns at these positions, in this order.
  void put(std::span<const Range> positions, const ExecutorRef& executor);

  /// The keys of `batch` sequences, [batch, Hk, count, M + 1].
  View<const T> keys(Index batch) { return for_batch<T>(rows_of(memory_, shape_), batch); }

  /// Writes the requested gradients of W2 and b2: those of the keys, summed in order over the
  /// sequences that read them, and 0 for columns that are not read.
  /// \param d_keys [B, Hk, N, M + 1]; [1, ...] if it is the sum over the sequences
  static void finish(const View<T>& d_keys, const DenseSynthesizerGrads<T>& grads,
                     const ExecutorRef& executor);

 private:
  static constexpr Index kRows = kProductRows;  // keys of a task

  /// Writes the gradient of W2 or of b2.
  static void write(const View<T>& d_keys, const View<T>& to, bool is_weight,
                    const ExecutorRef& executor);

  View<const T> w2_;
  View<const T> b2_;
  Shape shape_ = {};
  Workspace memory_;
};

}  // namespace detail

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/synthesizer/key_columns.inl.hpp"
#endif
