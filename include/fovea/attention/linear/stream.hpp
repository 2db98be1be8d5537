// SPDX-License-Identifier: MIT
/// \file
/// One causal pass over a key head's tokens, with the query heads that read it. The forward pass
/// runs it from the first token on, a decoder as tokens arrive.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/linear/terms.hpp"
#include "fovea/kernels/linear/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// Adds the terms of a far field to rows, term by term. If there is a near field, the rows contain
/// its result before the first term. Until the last term they are kept in `out`, or, if that has 16
/// bits, in separate memory.
/// \tparam Field a LinearTerms for the arithmetic of T
template <class T, class Field>
class CausalStream {
 public:
  /// The type of the arithmetic.
  using C = Compute<T>;
  /// Whether `out` has the type of the arithmetic.
  static constexpr bool kOutIsWide = std::same_as<T, C>;

  /// \param group number of query heads of a key head, since a decoder's step may have no keys
  /// \param weights the weights of the near and the far field; they must outlive this object
  CausalStream(const LinearFamilyInputs<T>& inputs, Index group, const Field& far_field,
               const FarWeights<C>& weights, bool has_near, const View<T>& out)
      : inputs_(inputs),
        group_(group),
        far_(far_field),
        weights_(weights),
        has_near_(has_near),
        out_(out) {}

  /// Elements of one key head's state of sums.
  static Index state_elements(const LinearShape& shape) {
    return shape.maps == 0 ? 0 : padded_row<C>(linear_state_elements<C>(shape));
  }
  /// Elements of one key head's delta-rule state.
  static Index delta_elements(const LinearShape& shape) {
    if (!Field::kHasDelta) return 0;
    return padded_row<C>(delta_state_elements<C>(shape.width, shape.value_width));
  }
  /// Elements of scratch for `add`.
  static Index scratch_elements(const LinearShape& shape) {
    return padded_row<C>((std::max)(linear_stream_scratch<C>(shape),
                                    delta_stream_scratch<C>(shape.width, shape.value_width)));
  }
  /// Elements of memory for that many unrounded rows of each query head of a key head.
  static Index wide_elements(const LinearShape& shape, Index group, Index rows) {
    return kOutIsWide ? 0 : group * rows * padded_row<C>(shape.value_width);
  }

  /// The number of query heads of a key head.
  Index group() const { return group_; }

  /// One worker's memory.
  struct Memory {
    C* state = nullptr;   ///< [state_elements] the state of the sums
    C* delta = nullptr;   ///< [delta_elements] the state of the delta rule
    C* wide = nullptr;    ///< [group, wide_rows, Dv padded] rows before they are rounded
    Index wide_rows = 0;  ///< rows of each query head that fit `wide`
    C* kernel = nullptr;  ///< [scratch_elements] scratch of the kernels
    LinearRows<C, kStorage<T>>* rows = nullptr;  ///< [group] arguments of the query heads
  };

  /// Rows, and tokens not yet added to the terms.
  struct RowBlock {
    Index first_row = 0;       ///< first row of q and out
    Index rows = 0;            ///< number of rows of each query head
    Index first_token = 0;     ///< first row of k and v
    Index tokens = 0;          ///< number of tokens to add
    Index length = 0;          ///< number of tokens already added to the terms
    Index first_position = 0;  ///< position of the first row
  };

  /// The rows of a group's query head g before the last term is added.
  OutputMatrix<kStorage<T>> near_rows(Index b, Index key_head, Index g, Index first_row,
                                      const Memory& at) const {
    if constexpr (kOutIsWide) {
      return detail::head_output(out_, b, key_head * group() + g, first_row);
    } else {
      const Index row = padded_row<C>(out_.width());
      return {at.wide + g * at.wide_rows * row, row, 1, true};
    }
  }

  /// The same rows as a far-field kernel takes them.
  /// \param is_first whether its term is the first one
  /// \param is_last whether its term is the last one
  LinearRows<C, kStorage<T>> term_rows(Index b, Index key_head, Index g, Index first_row,
                                       bool is_first, bool is_last, const Memory& at) const {
    const Index head = key_head * group() + g;
    const OutputMatrix<kStorage<T>> before = near_rows(b, key_head, g, first_row, at);
    LinearRows<C, kStorage<T>> rows;
    rows.q = detail::head_stored(inputs_.q, b, head, first_row);
    rows.out = is_last ? detail::head_output(out_, b, head, first_row) : before;
    if (has_near_ || !is_first) {
      rows.near_field = {static_cast<const C*>(before.data), before.row, before.column};
    }
    rows.near_weight = is_first ? weights_.near_field(head) : nullptr;
    rows.far_weight = weights_.far_field(head);
    return rows;
  }

  /// Adds a row block's tokens to a key head's states, and the far field to the row block's rows.
  /// \param sums the sums of the row block's chunks, if already computed: then the row block begins
  /// with a segment, and the states are not used
  void add(Index b, Index key_head, const RowBlock& row_block, const Memory& at,
           const SharedSums<C>& sums = {}) const {
    if constexpr (Field::kHasSums) {
      auto args = stream_args<LinearStreamArgs<C, kStorage<T>>>(b, key_head, row_block, at);
      args.width = far_.features(inputs_.q.width());
      args.maps = far_.linear_maps(inputs_.q.width());
      args.sums = sums;
      args.state = at.state;
      set_rows(b, key_head, row_block, true, !Field::kHasDelta, at);
      LinearKernels<C, kStorage<T>>{}.stream(args);
    }
    if constexpr (Field::kHasDelta) {
      auto args = stream_args<DeltaStreamArgs<C, kStorage<T>>>(b, key_head, row_block, at);
      if (row_block.tokens > 0) {
        args.beta = detail::head_matrix(inputs_.beta, b, key_head, row_block.first_token);
      }
      args.map = far_.deltas[0];
      args.state = at.delta;
      set_rows(b, key_head, row_block, !Field::kHasSums, true, at);
      LinearKernels<C, kStorage<T>>{}.delta_stream(args);
    }
  }

 private:
  void set_rows(Index b, Index key_head, const RowBlock& row_block, bool is_first, bool is_last,
                const Memory& at) const {
    if (row_block.rows == 0) return;
    for (Index g = 0; g < group(); ++g) {
      at.rows[g] = term_rows(b, key_head, g, row_block.first_row, is_first, is_last, at);
    }
  }

  template <class Args>
  Args stream_args(Index b, Index key_head, const RowBlock& row_block, const Memory& at) const {
    Args args;
    if (row_block.tokens > 0) {
      args.k = detail::head_stored(inputs_.k, b, key_head, row_block.first_token);
      args.v = detail::head_stored(inputs_.v, b, key_head, row_block.first_token);
    }
    args.width = inputs_.q.width();
    args.value_width = out_.width();
    args.length = row_block.length;
    args.tokens = row_block.tokens;
    args.rows = at.rows;
    args.heads = row_block.rows == 0 ? 0 : group();
    args.row_count = row_block.rows;
    args.first_position = row_block.first_position;
    args.scratch = at.kernel;
    return args;
  }

  LinearFamilyInputs<T> inputs_;
  Index group_;
  Field far_;
  const FarWeights<C>& weights_;
  bool has_near_;
  View<T> out_;
};

FOVEA_NAMESPACE_END
