// SPDX-License-Identifier: MIT
/// \file
/// The common part of both backward passes of Performer attention: tensors, and propagation of the
/// features' gradients to rows and projection.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/linear/feature_segments.hpp"
#include "fovea/attention/linear/performer_visibility.hpp"

FOVEA_NAMESPACE_BEGIN

/// One backward pass of Performer attention. The projection's gradient consists of one part for
/// each task, which are added up in order.
template <class T>
class PerformerBackwardCall {
 public:
  /// \param given checked inputs, which must outlive this object
  PerformerBackwardCall(const PerformerInputs<T>& given, const PerformerVisibility& sees,
                        const View<const T>& d_output, const PerformerGrads<T>& gradients)
      : inputs(given),
        shape(shape_of(given)),
        visibility(sees),
        sequences(given, sees.alignment),
        d_out(d_output),
        grads(gradients) {}
  PerformerBackwardCall(const PerformerBackwardCall&) = delete;
  PerformerBackwardCall& operator=(const PerformerBackwardCall&) = delete;

  /// Elements of scratch for `finish_rows`.
  static Index scratch_elements(const PerformerShape& shape) {
    return 2 * kFeatureRows * padded_row<T>(shape.width);
  }

  /// Allocates memory.
  /// \param parts number of tasks that may add to the gradient of the projection
  /// \throws std::bad_alloc
  template <class Memory>
  void reserve(Index parts, Memory&& memory) {
    part_count = wants_projection() ? parts : 0;
    projection_memory = memory.take(
        1, RandomFeatures<T>::elements(shape.features, shape.width, true) * Index{sizeof(T)});
    part_memory = memory.take(part_count, part_elements(shape) * Index{sizeof(T)});
  }
  /// Prepares the projection, and clears the parts of its gradient.
  void prepare() {
    if (!inputs.projection.empty()) {
      features.pack(inputs.projection, true, projection_memory.template data<T>());
    }
    T* const parts = part_memory.template data<T>();
    std::fill(parts, parts + part_count * part_elements(shape), T(0));
  }
  /// The same, and clears the gradients that no task writes.
  void begin() {
    prepare();
    for (Index n = 0; n < sequences.count(); ++n) {
      const Sequence s = sequences[n];
      const Index seen = shape.query_heads == 0 ? 0 : visibility.seen(s);
      for (const View<T>& x : {grads.k, grads.v}) {
        detail::fill_rows(x, s.batch, s.first_key + seen, s.first_key + s.keys, T{0});
      }
      detail::fill_rows(grads.q, s.batch, s.first_query, s.first_query + unseeing(s), T{0});
    }
  }
  /// Adds up the parts of the projection's gradient.
  void finish() {
    if (wants_projection()) add_parts(part(0), part_count, nullptr, true);
  }
  /// Adds parts to those before them.
  /// \param first, count the parts, consecutive
  /// \param sums [part_elements] the sum so far as a two-word number, changed; null: none
  /// \param is_last whether to write the gradient of the projection
  void add_parts(const T* first, Index count, T* sums, bool is_last) const {
    ProjectionGradArgs<T> args;
    args.parts = first;
    args.count = count;
    args.features = shape.features;
    args.width = shape.width;
    args.factor = features.factor();
    args.sums = sums;
    if (is_last) args.d_projection = detail::head_matrix(grads.projection, 0, 0, 0);
    RandomFeatureGradKernels<T>{}.projection(args);
  }

  /// Part n of the projection's gradient; null if not wanted.
  T* part(Index n) {
    return wants_projection() ? part_memory.template data<T>() + n * part_elements(shape) : nullptr;
  }
  /// Elements of a part.
  static Index part_elements(const PerformerShape& shape) {
    return 2 * shape.features * padded_row<T>(shape.width);
  }

  /// The query heads of a key head.
  Index group() const { return detail::group_size(shape.query_heads, shape.key_heads); }
  /// Whether the gradient of the projection is wanted.
  bool wants_projection() const { return !grads.projection.empty(); }
  /// Whether gradients of the queries' features are wanted.
  bool wants_queries() const { return !grads.q.empty() || wants_projection(); }
  /// Whether gradients of the keys' features are wanted.
  bool wants_features() const { return !grads.k.empty() || wants_projection(); }
  /// Whether the rows' contribution to tokens is wanted.
  bool wants_keys() const { return wants_features() || !grads.v.empty(); }
  /// The number of leading rows of a sequence that see no token.
  Index unseeing(const Sequence& s) const {
    if (visibility.seen(s) == 0) return s.queries;
    if (!visibility.causal) return 0;
    return std::clamp(-s.first_position, Index{0}, s.queries);
  }

  /// A head's matrix from a row on; empty if there is no tensor.
  template <class U>
  static Matrix<U> matrix(const View<U>& x, Index b, Index h, Index row) {
    return x.empty() ? Matrix<U>{} : detail::head_matrix(x, b, h, row);
  }

  /// Propagates the feature gradients of up to kFeatureRows rows to the rows and the projection.
  /// \param made [count, R padded] the features
  /// \param d_made [count, R padded] their gradients, which are changed
  /// \param to the part of the projection's gradient; null if not wanted
  void finish_rows(const Matrix<const T>& x, const Matrix<T>& d_x, Index count, bool is_key,
                   const T* made, T* d_made, T* to, T* scratch) {
    FeatureGradArgs<T> args;
    args.features_of = made;
    args.d_rows = d_made;
    args.count = count;
    args.features = shape.features;
    args.width = shape.width;
    args.x = x;
    args.norm_factor = is_key ? features.norm_factor() : T{0};
    args.rows = features.rows();
    args.d_x = d_x;
    args.d_projection = to;
    args.scratch = scratch;
    RandomFeatureGradKernels<T>{}.rows(args);
  }

  const PerformerInputs<T>& inputs;  ///< the inputs
  PerformerShape shape;              ///< their sizes
  PerformerVisibility visibility;    ///< what rows see
  Sequences<T> sequences;            ///< the sequences
  View<const T> d_out;               ///< the gradient of the output
  PerformerGrads<T> grads;           ///< the gradients that are written
  RandomFeatures<T> features;        ///< the projection

 private:
  Workspace projection_memory;
  Workspace part_memory;  // [part_count] [2, R, D padded]
  Index part_count = 0;
};

FOVEA_NAMESPACE_END
