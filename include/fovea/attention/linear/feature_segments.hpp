// SPDX-License-Identifier: MIT
/// \file
/// The two steps of non-causal Performer attention: the sums of a segment of tokens, and rows that
/// read the total of all segments.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/linear/random_features.hpp"

FOVEA_NAMESPACE_BEGIN

/// Both steps for the tensors of a call.
template <class T>
class FeatureSegments {
 public:
  /// \param inputs must outlive this object, and so must `features`
  FeatureSegments(const PerformerInputs<T>& inputs, const RandomFeatures<T>& features)
      : inputs_(inputs),
        features_(features),
        sizes_{1, inputs.projection.rows(), inputs.v.width()} {}

  /// Elements of a segment's sums, followed by their reference, [R padded].
  static Index sum_elements(const PerformerShape& shape) {
    return linear_sum_elements<T>({1, shape.features, shape.value_width});
  }
  /// Elements of scratch of `sum`.
  static Index sum_scratch(const PerformerShape& shape) {
    return kLinearSegment * padded_row<T>(shape.features) +
           RandomFeatures<T>::scratch_elements(shape.width) +
           padded_row<T>(linear_sum_scratch<T>({1, shape.features, shape.value_width}));
  }
  /// Elements of scratch of `read`.
  static Index read_scratch(const PerformerShape& shape) {
    return kFeatureRows * padded_row<T>(shape.features) +
           RandomFeatures<T>::scratch_elements(shape.width) +
           padded_row<T>(linear_read_scratch<T>({1, shape.features, shape.value_width}));
  }

  /// Writes a segment's sums, followed by the largest logits, which they are relative to.
  /// \param segment a segment of the sequence, of a key head
  /// \param seen the number of the sequence's tokens that rows see; the segment has some of them
  void sum(const Sequence& s, const SequenceTask& segment, Index seen, T* sums, T* scratch) const {
    const Index begin = segment.part * kLinearSegment;
    const Index tokens = (std::min)(kLinearSegment, seen - begin);
    T* const packed = scratch + kLinearSegment * features_.row();
    FeatureRowsArgs<T> rows;
    rows.features = sizes_.width;
    rows.reference = sums + linear_sum_elements<T>(sizes_);
    for (Index n = 0; n < tokens; n += kFeatureRows) {
      rows.count = (std::min)(kFeatureRows, tokens - n);
      rows.rows = scratch + n * features_.row();
      rows.is_first = n == 0;
      features_.logits(
          detail::head_matrix(inputs_.k, s.batch, segment.head, s.first_key + begin + n),
          rows.count, tokens - n - rows.count, true, rows.rows, packed);
      RandomFeatureKernels<T>{}.maxima(rows);
    }
    rows.rows = scratch;
    rows.count = tokens;
    RandomFeatureKernels<T>{}.keys(rows);
    LinearSumArgs<T> args;
    args.k = {scratch, features_.row(), 1};
    args.v = detail::head_stored(inputs_.v, s.batch, segment.head, s.first_key + begin);
    args.width = sizes_.width;
    args.value_width = sizes_.value_width;
    args.maps = made_features<T>();
    args.tokens = tokens;
    args.sums = sums;
    args.scratch = packed + RandomFeatures<T>::scratch_elements(inputs_.k.width());
    LinearKernels<T>{}.sum(args);
  }

  /// Rows of a query head that read a total.
  struct Rows {
    Index batch = 0;  ///< the sequence
    Index head = 0;   ///< the query head
    Index first = 0;  ///< first row of q and out
    Index count = 0;  ///< at most kFeatureRows
    Index next = 0;   ///< following rows that will be read next
  };

  /// Writes rows of the output.
  /// \param total the sums of all segments, in the features of their reference
  /// \param reference [R padded]
  void read(const Rows& rows, const T* total, T* reference, const View<T>& out, T* scratch) const {
    T* const packed = scratch + kFeatureRows * features_.row();
    features_.queries(detail::head_matrix(inputs_.q, rows.batch, rows.head, rows.first), rows.count,
                      rows.next, reference, scratch, packed);
    LinearReadArgs<T> args;
    args.rows.q = {scratch, features_.row(), 1};
    args.rows.out = detail::head_output(out, rows.batch, rows.head, rows.first);
    args.row_count = rows.count;
    args.width = sizes_.width;
    args.value_width = sizes_.value_width;
    args.maps = made_features<T>();
    args.total = total;
    args.scratch = packed + RandomFeatures<T>::scratch_elements(inputs_.q.width());
    LinearKernels<T>{}.read(args);
  }
  /// Writes rows that see no token.
  static void clear(const Rows& rows, const View<T>& out) {
    detail::fill_rows(out, rows.batch, rows.head, rows.first, rows.first + rows.count, T{0});
  }

 private:
  const PerformerInputs<T>& inputs_;
  const RandomFeatures<T>& features_;
  LinearShape sizes_;
};

FOVEA_NAMESPACE_END
