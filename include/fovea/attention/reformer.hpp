// SPDX-License-Identifier: MIT
/// \file
/// Reformer attention (Kitaev, Kaiser and Levskaya 2020, section 2; MATHS.md, section 7): rows
/// attend to rows with similar hashes.
#pragma once

#include <algorithm>
#include <concepts>
#include <string_view>

#include "fovea/attention/call/checked_calls.hpp"
#include "fovea/attention/reformer/options.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Attention by locality-sensitive hashing. Queries and keys are one tensor, qk; the key of a row x
/// is x / max(|x|, 1e-12). In each round, the bucket of row x is the index of the first maximum of
/// [x W, -x W], where W is the round's projection. Rows are sorted by (bucket, position) and
/// divided into chunks of c rows. The candidates of a row are the rows of its chunk and of the
/// preceding chunk; one that is in both, as FirstChunk::previous_round allows, counts twice. With
/// logits s_ij = scale <x_i, k_j>, except -5e4 for a row with itself,
///
///     o_i = sum_r softmax_r(lse_ir) sum_j softmax_j(s_ij) v_j,   j the candidates of round r,
///
/// where lse_ir is the logarithm of the round's sum of exp(s_ij). ReformerOptions has options that
/// hide candidates. With `correct_duplicates` the logarithm of the number of times that j is a
/// candidate of i is subtracted from s_ij, and the result is softmax attention over all rows that
/// are candidates in any round.
///
/// With a key length n, rows from n on are ignored, as queries and as keys: only the n rows are
/// sorted and divided, into ceil(n / c) chunks of which the last may be shorter. If c divides n,
/// the result is bitwise that of a sequence of n rows. Rows from n on are +0, and their lse is
/// -infinity.
///
/// A NaN or infinity in a row reaches the rows that it is a candidate of. A row whose products with
/// a projection contain a NaN, from the row or the projection, has no bucket, and its result is
/// NaN; it is sorted as if its bucket were the first. The bits of a result do not depend on
/// threads, batch or strides, and buckets are the same at levels v3 and v4.
///
/// Cost: 2 (D + Dv) 2 c flops for each row and round, and D buckets flops for its hash. Memory: O(B
/// H N rounds) integers, two numbers for each row, and O(threads c (D + Dv)); no N x N matrix is
/// computed.
class ReformerAttention : public CheckedCalls<ReformerAttention>,
                          public OperatorTypes<ReformerInputs, ReformerSaved, ReformerGrads,
                                               ReformerShape, ReformerOptions> {
 public:
  using OperatorTypes::OperatorTypes;

  /// The operator's name.
  static constexpr const char* name() { return "ReformerAttention"; }

  /// The number of computed (query, candidate) pairs of one head, over all rounds.
  [[nodiscard]] Index attended_pairs(const ReformerShape& shape, Index /*head*/ = 0) const {
    const Index keys = (std::min)(add_pairs(0, options.chunk, 2), shape.rows);
    return add_pairs(0, shape.rows, add_pairs(0, keys, options.rounds));
  }

  /// Writes the bucket of every row in every round; -1 for rows without one and rows beyond the key
  /// length.
  /// \param buckets [B, H, rounds, N]
  /// \throws std::invalid_argument as `check` does; std::bad_alloc
  template <class T, class E = Serial>
  void buckets(const ReformerInputs<T>& inputs, const View<Index>& buckets,
               E&& executor = {}) const {
    check_buckets(inputs, buckets);
    write_buckets(inputs, buckets, for_call(executor));
  }

  /// There is no decoder; calling this is a compile error.
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "ReformerAttention has no decoder: a new token may move rows to other chunks");
  }

 private:
  friend class ForwardCalls<ReformerAttention>;
  friend class BackwardCalls<ReformerAttention>;
  friend class CheckedCalls<ReformerAttention>;

  /// The log-sum-exps of rounds are computed again unless they are saved.
  static constexpr bool kNeedsLse = false;

  template <class T>
  void check_read(const ReformerInputs<T>& inputs) const;
  template <class T>
  fovea::Shape saved_shape(const ReformerInputs<T>& inputs, std::string_view tensor) const {
    return detail::row_shape(inputs, tensor == "lse" ? 1 : options.rounds);
  }

  template <class T>
  void check_buckets(const ReformerInputs<T>& inputs, const View<Index>& buckets) const;
  template <class T>
  void write_buckets(const ReformerInputs<T>& inputs, const View<Index>& buckets,
                     const ExecutorRef& executor) const;

  /// The multiply-adds of a pass that performs `of_pair` for each pair.
  double products(const ReformerShape& s, Index of_pair) const {
    return static_cast<double>(s.batch * s.heads * of_pair) *
           static_cast<double>(attended_pairs(s));
  }

  /// Writes the gradients of the loss, given d_out, its gradient with respect to out. They are
  /// exact for fixed buckets, which are computed again and not differentiated. The gradient of qk
  /// is the sum of its gradients as queries and, through the normalisation, as keys. The logit of a
  /// row with itself is a constant. Cost: hashing and sorting again, and 2 (3 D + 2 Dv) flops for
  /// each pair; 2 D more if the log-sum-exps of the rounds were not saved. Memory: that of the
  /// forward pass, and one number for each row and round (two if they were not saved).
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
#include "fovea/attention/reformer.inl.hpp"
#endif
