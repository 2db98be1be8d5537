// SPDX-License-Identifier: MIT
/// \file
/// The common part of a far field's backward pass: its tensors, and the kernel arguments made from
/// them.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/linear/terms.hpp"
#include "fovea/kernels/linear/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The tensors of one backward pass of a far field.
/// \tparam Field a LinearTerms of T
template <class T, class Field>
struct LinearBackwardCall {
  /// As in LinearBackward.
  LinearBackwardCall(const LinearFamilyInputs<T>& given, const Field& field,
                     const FarWeights<T>& far_weights, const View<const T>& d_output,
                     const LinearFamilyGrads<T>& gradients)
      : inputs(given),
        shape(shape_of(given)),
        far_field(field),
        weights(far_weights),
        sequences(given, field.alignment),
        d_out(d_output),
        grads(gradients) {}

  /// The number of query heads of a key head.
  Index group() const { return detail::group_size(shape.query_heads, shape.key_heads); }
  /// Whether gradients of keys or values are wanted.
  bool wants_keys() const { return !grads.k.empty() || !grads.v.empty(); }
  /// The number of query heads of all sequences.
  Index row_heads() const { return sequences.count() * shape.query_heads; }
  /// The number of key heads of all sequences.
  Index key_heads() const { return sequences.count() * shape.key_heads; }

  /// A head's matrix from a row on; empty if there is no tensor.
  template <class U>
  static Matrix<U> matrix(const View<U>& x, Index b, Index h, Index row) {
    return x.empty() ? Matrix<U>{} : detail::head_matrix(x, b, h, row);
  }

  /// Rows of one query head, from row `first` of its sequence on.
  LinearGradRows<T> rows_of(const Sequence& s, Index head, Index first) const {
    LinearGradRows<T> rows;
    rows.q = matrix(inputs.q, s.batch, head, s.first_query + first);
    rows.d_out = matrix(d_out, s.batch, head, s.first_query + first);
    rows.far_weight = weights.far_field(head);
    rows.d_q = matrix(grads.q, s.batch, head, s.first_query + first);
    return rows;
  }

  /// Tokens of one key head, from token `first` of its sequence on.
  LinearGradTokens<T> tokens_of(const Sequence& s, Index key_head, Index first, Index count) const {
    const Index row = s.first_key + first;
    return {matrix(inputs.k, s.batch, key_head, row), matrix(inputs.v, s.batch, key_head, row),
            matrix(grads.k, s.batch, key_head, row), matrix(grads.v, s.batch, key_head, row),
            count};
  }

  /// The kernel arguments for a segment of a query head's rows, for non-causal sums: all but the
  /// sums, the total and scratch.
  LinearGradRowsArgs<T> row_args(const SequenceTask& segment, bool add) const {
    const Sequence s = sequences[segment.sequence];
    const Index first = segment.part * kLinearSegment;
    LinearGradRowsArgs<T> args;
    args.rows = rows_of(s, segment.head, first);
    args.row_count = (std::min)(kLinearSegment, s.queries - first);
    args.width = far_field.features(shape.width);
    args.value_width = shape.value_width;
    args.maps = far_field.linear_maps(shape.width);
    args.accumulate = add;
    return args;
  }

  /// The same for a segment of a key head's tokens.
  LinearGradKeysArgs<T> key_args(const SequenceTask& segment, bool add) const {
    const Sequence s = sequences[segment.sequence];
    const Index first = segment.part * kLinearSegment;
    LinearGradKeysArgs<T> args;
    args.tokens = tokens_of(s, segment.head, first, (std::min)(kLinearSegment, s.key_end - first));
    args.width = far_field.features(shape.width);
    args.value_width = shape.value_width;
    args.maps = far_field.linear_maps(shape.width);
    args.accumulate = add;
    return args;
  }

  /// The kernel arguments for a key head's rows and tokens, for the delta rule: all but the
  /// position, `accumulate` and scratch.
  /// \param query_rows [group], written
  DeltaGradArgs<T> delta_args(const Sequence& s, Index key_head, const Range& rows,
                              const Range& tokens, LinearGradRows<T>* query_rows) const {
    for (Index g = 0; g < group(); ++g) {
      query_rows[g] = rows_of(s, key_head * group() + g, rows.begin);
    }
    DeltaGradArgs<T> args;
    args.tokens = tokens_of(s, key_head, tokens.begin, tokens.end - tokens.begin);
    args.beta = matrix(inputs.beta, s.batch, key_head, s.first_key + tokens.begin);
    args.d_beta = matrix(grads.beta, s.batch, key_head, s.first_key + tokens.begin);
    args.width = shape.width;
    args.value_width = shape.value_width;
    args.map = far_field.deltas[0];
    args.rows = query_rows;
    args.heads = group();
    args.row_count = rows.end - rows.begin;
    return args;
  }

  /// The number of tokens of a sequence that rows can see.
  Index seen(const Sequence& s) const {
    const bool has_rows = s.queries > 0 && shape.query_heads > 0;
    return has_rows ? s.key_end : 0;
  }

  /// Writes zeros where no kernel writes: to tokens that no row can see, and to rows that see none.
  void clear_unseen(bool add) const {
    if (add) return;
    for (Index n = 0; n < sequences.count(); ++n) {
      const Sequence s = sequences[n];
      for (const View<T>& x : {grads.k, grads.v}) {
        detail::fill_rows(x, s.batch, s.first_key + seen(s), s.first_key + s.keys, T{0});
      }
      if (s.key_end == 0) {
        detail::fill_rows(grads.q, s.batch, s.first_query, s.first_query + s.queries, T{0});
      }
    }
  }

  LinearFamilyInputs<T> inputs;  ///< the inputs
  AttentionShape shape;          ///< their sizes
  Field far_field;               ///< the terms of the far field
  const FarWeights<T>& weights;  ///< the weights of the far field
  Sequences<T> sequences;        ///< the sequences
  View<const T> d_out;           ///< the gradient of the output
  LinearFamilyGrads<T> grads;    ///< the gradients that are written
};

/// Each task's part of a product, added up in the order of the tasks.
template <class T>
class PartialProducts {
 public:
  /// No product.
  PartialProducts() = default;
  /// \param wanted whether the product is wanted
  /// \param tasks number of tasks
  PartialProducts(bool wanted, Index tasks)
      : found_(static_cast<std::size_t>(wanted ? tasks : 0)) {}

  /// Where a task writes its part; null if not wanted.
  T* at(Index task) { return found_.empty() ? nullptr : &found_[static_cast<std::size_t>(task)]; }

  /// Adds up all tasks' parts.
  /// \param products [Hq]
  /// \param head_of called as head_of(task), returns a task's query head
  template <class HeadOf>
  void add_up(double* products, const HeadOf& head_of) const {
    for (std::size_t n = 0; n < found_.size(); ++n) {
      products[head_of(static_cast<Index>(n))] += static_cast<double>(found_[n]);
    }
  }

 private:
  std::vector<T> found_;
};

FOVEA_NAMESPACE_END
