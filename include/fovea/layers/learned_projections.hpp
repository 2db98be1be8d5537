// SPDX-License-Identifier: MIT
/// \file
/// What Linformer and Nystroem attention have from a layer beside q, k and v: projections that it
/// learns, and room for what is kept from forward to backward.
#pragma once

#include "fovea/attention/linformer.hpp"
#include "fovea/attention/nystroem.hpp"
#include "fovea/layers/learned_inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// LinformerAttention learns its projections E and F [P, length], which all heads share (headwise
/// sharing in the paper's section 4). A sequence of fewer tokens meets their first columns. The
/// projected keys and values are kept for the backward pass.
template <class T>
class LearnedInputs<LinformerAttention, T> : public NothingLearned<T> {
 public:
  Parameter<T> key_projection;    ///< [P, length] E
  Parameter<T> value_projection;  ///< [P, length] F

  /// What is kept from forward to backward, and room for gradients.
  struct Saved {
    Buffer<T> keys;      ///< [B, Hk, P, D] projected keys
    Buffer<T> values;    ///< [B, Hk, P, D] projected values
    Buffer<T> d_keys;    ///< [1, 1, P, L] the gradient of E
    Buffer<T> d_values;  ///< [1, 1, P, L] the gradient of F
  };

  /// Projections without sizes, which have yet to be assigned to.
  LearnedInputs() = default;
  /// Draws E and F. \throws std::invalid_argument if `length` or `projected` is not set
  LearnedInputs(const LinformerAttention& /*op*/, const HeadSizes& sizes, Initialiser& initialiser)
      : sizes_(sizes) {
    check_size(LinformerAttention::name(), "length", sizes.length);
    check_size(LinformerAttention::name(), "projected", sizes.projected);
    key_projection = Parameter<T>("key_projection", sizes.projected, sizes.length);
    value_projection = Parameter<T>("value_projection", sizes.projected, sizes.length);
    initialiser.draw(key_projection, Initialisation::glorot, sizes.length, sizes.projected);
    initialiser.draw(value_projection, Initialisation::glorot, sizes.length, sizes.projected);
  }

  /// Lists E and F.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.key_projection);
    f(self.value_projection);
  }

  /// Makes room for the projected keys and values.
  /// \throws std::invalid_argument if a sequence is longer than the projections
  template <class E>
  void compute(const LinformerAttention& /*op*/, const Tokens<T>& source, Saved& saved,
               E&& /*executor*/) const {
    if (source.x.rows() > sizes_.length) {
      refuse(LinformerAttention::name(), "rows of x", std::to_string(source.x.rows()),
             "at most " + std::to_string(sizes_.length) + ", the length of the projections");
    }
    const Shape shape = {source.x.batch(), sizes_.key_heads, sizes_.projected, sizes_.head_width};
    saved.keys.resize(shape);
    saved.values.resize(shape);
  }

  /// Gives the projections to the operator, and room for what it saves.
  void attach(const Tokens<T>& source, Saved& saved, LinformerInputs<T>& inputs,
              LinformerSaved<T>& kept) const {
    inputs.key_projection = columns(key_projection, source.x.rows());
    inputs.value_projection = columns(value_projection, source.x.rows());
    kept.projected_keys = saved.keys.view();
    kept.projected_values = saved.values.view();
  }

  /// Asks the operator for the gradients of the projections.
  void ask(const Tokens<T>& source, Saved& saved, LinformerGrads<T>& grads) const {
    const Shape shape = {1, 1, sizes_.projected, source.x.rows()};
    grads.key_projection = saved.d_keys.resize(shape);
    grads.value_projection = saved.d_values.resize(shape);
  }

  /// Adds to the gradients of E and F.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& /*d_source*/,
              E&& /*executor*/) {
    const Index rows = source.x.rows();
    key_projection.gradient_sum().leftCols(rows) += detail::rows_of(saved.d_keys.view(), 0);
    value_projection.gradient_sum().leftCols(rows) += detail::rows_of(saved.d_values.view(), 0);
  }

 private:
  static View<const T> columns(const Parameter<T>& parameter, Index count) {
    const RowMatrix<T>& value = parameter.value;
    return {value.data(), {1, 1, value.rows(), count}, {0, 0, value.cols(), 1}};
  }

  HeadSizes sizes_;
};

/// NystroemAttention learns nothing here. What its landmarks attend to is kept for the backward
/// pass.
template <class T>
class LearnedInputs<NystroemAttention, T> : public NothingLearned<T> {
 public:
  /// What is kept from forward to backward.
  struct Saved {
    Buffer<T> lse;     ///< [B, H, m, 1] of the landmarks
    Buffer<T> values;  ///< [B, H, m, D] what they attend to
  };

  /// Without sizes, which have yet to be assigned to.
  LearnedInputs() = default;
  /// Remembers the sizes.
  LearnedInputs(const NystroemAttention& /*op*/, const HeadSizes& sizes,
                Initialiser& /*initialiser*/)
      : sizes_(sizes) {}

  /// Makes room for what the landmarks attend to.
  template <class E>
  void compute(const NystroemAttention& op, const Tokens<T>& source, Saved& saved,
               E&& /*executor*/) const {
    const Index landmarks = (std::max<Index>)(0, op.options.landmarks);
    saved.lse.resize({source.x.batch(), sizes_.heads, landmarks, 1});
    saved.values.resize({source.x.batch(), sizes_.heads, landmarks, sizes_.head_width});
  }

  /// Says where the operator keeps it.
  void attach(const Tokens<T>& /*source*/, Saved& saved, NystroemInputs<T>& /*inputs*/,
              NystroemSaved<T>& kept) const {
    kept.landmark_lse = saved.lse.view();
    kept.landmark_values = saved.values.view();
  }

 private:
  HeadSizes sizes_;
};

FOVEA_NAMESPACE_END
