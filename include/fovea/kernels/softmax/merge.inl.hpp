// SPDX-License-Identifier: MIT
/// \file
/// Merges the segment results of row.inl.hpp, and writes the rows.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/row.inl.hpp"
#endif

/// Merges the segments of the rows of one head by the same operations as RunningSoftmax::merge, and
/// writes out and lse.
template <Storage S, class T>
class SoftmaxMerge {
 public:
  explicit SoftmaxMerge(const SoftmaxMergeArgs<T, S>& args) : args_(args), head_(*args.head) {}

  void run() const {
    for (Index i = 0; i < args_.block.count; ++i) merge(i);
  }

 private:
  RowSoftmax<const T> part(Index p) const {
    const Index rows = args_.head_count * args_.block.count;
    return {args_.parts + p * softmax_row_part(rows, head_.value_width), rows, head_.value_width};
  }

  void merge(Index i) const {
    const Index row = args_.head_index * args_.block.count + i;
    const CarriedSoftmax<T>& carry = head_.carry;
    const Index at = args_.block.first + args_.block.step * i;
    Vec<T> total_max = set1(kMinusInfinity<T>);
    Vec<T> total_sum = zero<T>();
    bool saw = false;
    T* acc = args_.scratch;
    for (Index c = 0; c < head_.value_width; c += kLanes<T>) store(acc + c, zero<T>());
    if (carry.resumes) {
      total_max = set1(carry.rows[3 * at]);
      total_sum = set1(carry.rows[3 * at + 1]);
      saw = carry.rows[3 * at + 2] != 0;
      for (Index c = 0; c < head_.value_width; c += kLanes<T>) {
        store(acc + c, load_columns(carry.acc.data + at * carry.acc.row, carry.acc.column, c,
                                    head_.value_width));
      }
    }
    for (Index p = 0; p < args_.part_count; ++p) {
      const RowSoftmax<const T> state = part(p);
      saw = saw || state.saw[row] != 0;
      const Vec<T> part_max = set1(state.max_logit[row]);
      const Vec<T> now = maximum(total_max, part_max);
      const Vec<T> shift = finite_shift(now);
      const Vec<T> from_total = softmax_weight(total_max - shift);
      const Vec<T> from_part = softmax_weight(part_max - shift);
      total_max = now;
      total_sum = fma(total_sum, from_total, set1(state.sum[row]) * from_part);
      const T* from = state.acc + row * state.acc_row;
      for (Index c = 0; c < head_.value_width; c += kLanes<T>) {
        store(acc + c, fma(load(acc + c), from_total, load(from + c) * from_part));
      }
    }
    if (carry.suspends) {
      suspend(at, saw, total_max, total_sum);
    } else {
      finish(at, saw, total_max, total_sum);
    }
  }

  /// Leaves a row to the next pass.
  void suspend(Index at, bool saw, const Vec<T>& most, const Vec<T>& sum) const {
    const CarriedSoftmax<T>& carry = head_.carry;
    for (Index c = 0; c < head_.value_width; c += kLanes<T>) {
      store_columns(carry.acc.data + at * carry.acc.row, carry.acc.column, c, head_.value_width,
                    load(args_.scratch + c));
    }
    T* const to = carry.rows + 3 * at;
    to[0] = most.raw[0];
    to[1] = sum.raw[0];
    to[2] = saw ? 1 : 0;
  }

  /// Divides a row by its sum and writes it. A row without keys becomes +0, with lse -infinity.
  void finish(Index at, bool saw, const Vec<T>& total_max, const Vec<T>& total_sum) const {
    Vec<T> most = total_max;
    Vec<T> sum = total_sum;
    const int lift = head_.map.exponent_bias;
    Vec<T> rescale = set1<T>(1);
    if (head_.sink != nullptr) rescale = add_sink(*head_.sink, lift, most, sum);
    const Vec<T> inverse = rescale / sum;
    for (Index c = 0; c < head_.value_width; c += kLanes<T>) {
      const Vec<T> x = saw ? load(args_.scratch + c) * inverse : zero<T>();
      store_columns<S>(head_.out.data, at * head_.out.row, head_.out.column, c, head_.value_width,
                       x);
    }
    if (head_.lse.data == nullptr) return;
    head_.lse.data[at * head_.lse.row] =
        saw ? log_sum_exp(most, sum, lift).raw[0] : kMinusInfinity<T>;
  }

  const SoftmaxMergeArgs<T, S>& args_;
  const SoftmaxBlockArgs<T, S>& head_;
};

/// Computes the output rows of one head from the running softmaxes of its segments.
template <class T, Storage S>
void softmax_merge(const SoftmaxMergeArgs<T, S>& args) noexcept {
  SoftmaxMerge<S, T>(args).run();
}
