// SPDX-License-Identifier: MIT
/// \file
/// Sinkhorn attention (Tay et al. 2020, section 3; MATHS.md, section 7): each block of queries
/// attends to its own block of keys and to one sorted block.
#pragma once

#include "fovea/attention/call/checked_calls.hpp"
#include "fovea/attention/sinkhorn/options.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Attention to sorted blocks. The rows are divided into blocks of b. The sorting logits R are
/// normalised in log space n times, first rows and then columns, so that exp(R) approaches a matrix
/// whose rows and columns sum to 1. Sorted block u of k, and of v, is sum_w exp(R)[u, w] block_w,
/// and the queries of block u attend to the 2 b rows of the sorted block and their own block in one
/// softmax:
///
///     out_i = sum_j softmax_j(scale <q_i, k_j>) v_j.
///
/// With a key length n, a multiple of b, the blocks of queries, keys and R from n / b on are
/// ignored: the result is bitwise that of a sequence of n rows. Rows from n on are +0, and their
/// lse is -infinity. Other lengths are refused, since a sorted block is a sum of whole blocks.
///
/// A NaN in R reaches the rows whose sorted blocks depend on it: with n = 0 those of its block of
/// queries, otherwise all rows of its head. The bits of a result do not depend on threads, batch or
/// strides. The operator is not causal, since a sorted block is a sum over the whole sequence: a
/// causal option or a decoder is a compile error.
///
/// Cost: 2 (D + Dv) 2 b flops for each row, 2 (D + Dv) N / b for each row of k to sort blocks, and
/// 2 n (N / b)^2 exponentials and logarithms for each key head. Memory: 2 (D + Dv) numbers for each
/// row, and about 3 (N / b)^2, for as many key heads as have 2^23 numbers together; no N x N matrix
/// is computed.
class SinkhornAttention : public CheckedCalls<SinkhornAttention>,
                          public OperatorTypes<SinkhornInputs, SoftmaxSaved, SinkhornGrads,
                                               AttentionShape, SinkhornOptions> {
 public:
  using OperatorTypes::OperatorTypes;

  /// The operator's name.
  static constexpr const char* name() { return "SinkhornAttention"; }

  /// The number of (query, key) pairs of one query head, including keys of sorted blocks.
  [[nodiscard]] Index attended_pairs(const AttentionShape& shape, Index /*head*/ = 0) const {
    return add_pairs(0, shape.queries, add_pairs(0, options.block, 2));
  }

  /// There is no decoder; calling this is a compile error.
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "SinkhornAttention has no decoder: it is not causal, since a sorted block is a "
                  "sum of blocks of the whole sequence");
  }

 private:
  friend class ForwardCalls<SinkhornAttention>;
  friend class BackwardCalls<SinkhornAttention>;
  friend class CheckedCalls<SinkhornAttention>;

  template <class T>
  void check_read(const Inputs<T>& inputs) const;

  /// The multiply-adds of a pass that performs `of_pair` for each pair and `of_sum` for each
  /// element of a block that is added to a sorted block.
  double products(const AttentionShape& s, Index of_pair, Index of_sum) const {
    const auto heads = static_cast<double>(s.batch * s.query_heads);
    const Index sums = s.queries / options.block * s.queries;
    return heads *
           (static_cast<double>(attended_pairs(s)) * static_cast<double>(of_pair) +
            static_cast<double>(sums) * static_cast<double>(of_sum * (s.width + s.value_width)));
  }

  /// Writes the gradients of the loss, given d_out, its gradient with respect to out: exact
  /// derivatives of `forward`, for R through all iterations. Cost: that of sorting the blocks
  /// again, twice as much for their gradients, 2 (3 D + 2 Dv) 2 b flops for each row, and twice the
  /// exponentials. Memory: twice that of the forward pass, and 2 n (N / b)^2 numbers for each
  /// worker.
  template <class T>
  void run_backward(const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
                    const View<const T>& d_out, const Grads<T>& grads,
                    const ExecutorRef& executor) const;

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/sinkhorn.inl.hpp"
#endif
