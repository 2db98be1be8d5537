// SPDX-License-Identifier: MIT
/// \file
/// The inputs, saved tensors and gradients of all families together, for code that runs any
/// operator: they convert to those of one, and what that one does not have is left behind.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>

#include "fovea/attention/attention.hpp"

namespace bench {

namespace detail {

/// Something whose q is a View<T>.
template <class To, class T>
concept HasQueries = std::is_aggregate_v<To> && std::default_initializable<To> && requires(To to) {
  requires std::derived_from<decltype(to.q), fovea::View<T>>;
};

}  // namespace detail

/// What some operator reads.
template <class T>
struct AllInputs {
  fovea::View<const T> q = {};
  fovea::View<const T> k = {};
  fovea::View<const T> v = {};
  fovea::IndexSpan key_lengths = {};
  fovea::IndexSpan cu_seqlens_q = {};
  fovea::IndexSpan cu_seqlens_k = {};
  fovea::IndexSpan first_positions = {};
  fovea::View<const fovea::Compute<T>> bias = {};
  fovea::View<const bool> mask = {};
  std::span<const fovea::Compute<T>> alibi_slopes = {};
  std::span<const fovea::Compute<T>> sink = {};
  fovea::View<const fovea::Compute<T>> beta = {};
  fovea::View<const fovea::Compute<T>> near_logits = {};
  fovea::View<const fovea::Compute<T>> far_logits = {};
  fovea::View<const fovea::Index> indices = {};
  fovea::View<const fovea::Compute<T>> sketch_q = {};
  fovea::View<const fovea::Compute<T>> sketch_k = {};
  fovea::View<const fovea::Compute<T>> draws = {};
  fovea::View<const fovea::Compute<T>> dominant = {};
  fovea::View<const fovea::Compute<T>> projection = {};
  fovea::View<const fovea::Compute<T>> key_projection = {};
  fovea::View<const fovea::Compute<T>> value_projection = {};
  fovea::View<const fovea::Compute<T>> sorting = {};

  /// The inputs of a family.
  template <detail::HasQueries<const T> To>
  // NOLINTNEXTLINE(google-explicit-constructor): an operator is called with these
  operator To() const {
    auto to = fovea::detail::inputs_as<To>(*this);
    if constexpr (requires { to.bias; }) {
      to.bias = bias;
      to.mask = mask;
      to.alibi_slopes = alibi_slopes;
      to.sink = sink;
    }
    if constexpr (requires { to.indices; }) to.indices = indices;
    if constexpr (requires { to.sketch_q; }) {
      to.sketch_q = sketch_q;
      to.sketch_k = sketch_k;
      to.draws = draws;
    }
    if constexpr (requires { to.dominant; }) to.dominant = dominant;
    if constexpr (requires { to.projection; }) to.projection = projection;
    if constexpr (requires { to.key_projection; }) {
      to.key_projection = key_projection;
      to.value_projection = value_projection;
    }
    return to;
  }

  /// Those of Sinkhorn attention, which takes no packed sequences.
  template <detail::HasQueries<const T> To>
  requires requires(To to) { to.sorting; }
  // NOLINTNEXTLINE(google-explicit-constructor): as above
  operator To() const { return {q, k, v, key_lengths, sorting}; }

  /// The same with other q, k and v.
  template <class S>
  requires std::same_as<fovea::Compute<S>, fovea::Compute<T>> AllInputs<S> with_tensors(
      const fovea::View<const S>& other_q, const fovea::View<const S>& other_k,
      const fovea::View<const S>& other_v)
  const {
    return {
        other_q,         other_k,    other_v,        key_lengths,      cu_seqlens_q, cu_seqlens_k,
        first_positions, bias,       mask,           alibi_slopes,     sink,         beta,
        near_logits,     far_logits, indices,        sketch_q,         sketch_k,     draws,
        dominant,        projection, key_projection, value_projection, sorting};
  }

  /// What chooses keys alone.
  fovea::SketchInputs<fovea::Compute<T>> sketch() const {
    return {sketch_q, sketch_k, key_lengths, cu_seqlens_q, cu_seqlens_k, first_positions, draws};
  }
};

/// What some operator saves.
template <class T>
struct AllSaved {
  fovea::View<fovea::Compute<T>> lse = {};
  fovea::View<fovea::Index> indices = {};
  fovea::View<fovea::Compute<T>> near_out = {};
  fovea::View<fovea::Compute<T>> near_lse = {};
  fovea::View<fovea::Compute<T>> projected_keys = {};
  fovea::View<fovea::Compute<T>> projected_values = {};
  fovea::View<fovea::Compute<T>> landmark_lse = {};
  fovea::View<fovea::Compute<T>> landmark_values = {};

  /// The saved tensors of a family.
  template <class To>
  requires std::same_as<To, fovea::SoftmaxSaved<T>> || std::same_as<To, fovea::SmartBirdSaved<T>> ||
      std::same_as<To, fovea::FmmSaved<T>> || std::same_as<To, fovea::LinearSaved<T>> ||
      requires(To to) {
    to.projected_keys;
  } || requires(To to) {
    to.landmark_lse;
  }
  // NOLINTNEXTLINE(google-explicit-constructor): as of the inputs
  operator To() const {
    To to;
    if constexpr (requires { to.lse; }) to.lse = lse;
    if constexpr (requires { to.indices; }) to.indices = indices;
    if constexpr (requires { to.near_out; }) {
      to.near_out = near_out;
      to.near_lse = near_lse;
    }
    if constexpr (requires { to.projected_keys; }) {
      to.projected_keys = projected_keys;
      to.projected_values = projected_values;
    }
    if constexpr (requires { to.landmark_lse; }) {
      to.landmark_lse = landmark_lse;
      to.landmark_values = landmark_values;
    }
    return to;
  }
};

/// The gradients of some operator.
template <class T>
struct AllGrads {
  fovea::View<T> q = {};
  fovea::View<T> k = {};
  fovea::View<T> v = {};
  fovea::View<T> bias = {};
  std::span<T> sink = {};
  fovea::View<T> beta = {};
  fovea::View<T> near_logits = {};
  fovea::View<T> far_logits = {};
  fovea::View<T> dominant = {};
  fovea::View<T> projection = {};
  fovea::View<T> key_projection = {};
  fovea::View<T> value_projection = {};

  /// The gradients of a family.
  template <detail::HasQueries<T> To>
  // NOLINTNEXTLINE(google-explicit-constructor): as of the inputs
  operator To() const {
    To to;
    to.q = q;
    to.k = k;
    to.v = v;
    if constexpr (requires { to.bias; }) {
      to.bias = bias;
      to.sink = sink;
    }
    if constexpr (requires { to.beta; }) to.beta = beta;
    if constexpr (requires { to.near_logits; }) {
      to.near_logits = near_logits;
      to.far_logits = far_logits;
    }
    if constexpr (requires { to.dominant; }) to.dominant = dominant;
    if constexpr (requires { to.projection; }) to.projection = projection;
    if constexpr (requires { to.key_projection; }) {
      to.key_projection = key_projection;
      to.value_projection = value_projection;
    }
    return to;
  }
};

/// The shape of the operator `Op`. \param beyond K, M, P, R or d, if that says one of them
template <class Op>
typename Op::Shape shape_for(const fovea::AttentionShape& s, fovea::Index beyond) {
  typename Op::Shape shape{s.batch, s.query_heads, s.key_heads,  s.queries,
                           s.keys,  s.width,       s.value_width};
  if constexpr (requires { shape.keys_per_row; }) shape.keys_per_row = beyond;
  if constexpr (requires { shape.sketch_width; }) shape.sketch_width = beyond;
  if constexpr (requires { shape.dominants; }) shape.dominants = beyond;
  if constexpr (requires { shape.features; }) shape.features = beyond;
  if constexpr (requires { shape.projected_keys; }) shape.projected_keys = beyond;
  return shape;
}

/// The sizes of a decoder of the operator `Op`. \param beyond d or R, if they say it
template <class Op>
typename Op::DecoderShape decoder_shape_for(const fovea::DecoderShape& s, fovea::Index beyond) {
  typename Op::DecoderShape shape{s.batch,       s.query_heads, s.key_heads,      s.width,
                                  s.value_width, s.reserve,     s.rollback_tokens};
  if constexpr (requires { shape.sketch_width; }) shape.sketch_width = beyond;
  if constexpr (requires { shape.features; }) shape.features = beyond;
  return shape;
}

}  // namespace bench
