// SPDX-License-Identifier: MIT
/// \file
/// The inputs, saved tensors and gradients of Linformer attention.
#pragma once

#include <string_view>

#include "fovea/attention/call/shapes.hpp"

FOVEA_NAMESPACE_BEGIN

/// The inputs of Linformer attention.
template <std::floating_point T>
struct LinformerInputs {
  ViewMember<const T> q = {};  ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};  ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};  ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};  ///< [B], or empty
  /// Must be empty: the projections have one length.
  IndexSpan cu_seqlens_q = {};
  IndexSpan cu_seqlens_k = {};  ///< must be empty, too
  /// E, required: [1, 1, P, Nk] for all heads, [1, Hk, P, Nk], or a matrix [P, Nk]. Row p of E k is
  /// key p of every query.
  ViewMember<const T> key_projection = {};
  /// F, the same for the values, with as many rows as E. One of E and F may be shared by all heads
  /// and the other not.
  ViewMember<const T> value_projection = {};

  FOVEA_TENSORS(q, k, v, key_projection, value_projection)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor.ends_with("projection")) return {1, s.key_heads, s.projected_keys, s.keys};
    return detail::shape_in_call(s, tensor);
  }
};

/// What Linformer attention saves. A member is written only if a tensor is given. If `lse` and both
/// projected tensors are given, the backward pass does not project again.
template <std::floating_point T>
struct LinformerSaved {
  ViewMember<T> lse = {};  ///< [B, Hq, Nq, 1]: as in SoftmaxSaved, over the P projected keys
  ViewMember<T> projected_keys = {};    ///< [B, Hk, P, D]: E k
  ViewMember<T> projected_values = {};  ///< [B, Hk, P, Dv]: F v

  /// Whether both projected tensors are given.
  bool has_projected() const { return !projected_keys.empty() && !projected_values.empty(); }

  FOVEA_TENSORS(lse, projected_keys, projected_values)
};

/// The gradients of Linformer attention.
template <std::floating_point T>
struct LinformerGrads {
  ViewMember<T> q = {};  ///< [B, Hq, Nq, D]
  ViewMember<T> k = {};  ///< [B, Hk, Nk, D]
  ViewMember<T> v = {};  ///< [B, Hk, Nk, Dv]
  ViewMember<T> key_projection =
      {};  ///< the shape of E: summed over batch, and heads that share it
  ViewMember<T> value_projection = {};  ///< the shape of F, likewise

  FOVEA_TENSORS(q, k, v, key_projection, value_projection)
};

/// The sizes of a call of LinformerAttention: those of AttentionShape, and P.
struct LinformerShape {
  Index batch = 1;           ///< B
  Index query_heads = 1;     ///< Hq, a multiple of Hk
  Index key_heads = 1;       ///< Hk
  Index queries = 0;         ///< Nq
  Index keys = 0;            ///< Nk
  Index width = 0;           ///< D
  Index value_width = 0;     ///< Dv
  Index projected_keys = 0;  ///< P, the rows of E and F

  /// The sizes that all families have.
  // NOLINTNEXTLINE(google-explicit-constructor): what takes the common sizes takes these
  operator AttentionShape() const { return detail::common_shape(*this); }

  /// The shape of the projected keys.
  Shape key_shape() const { return {batch, key_heads, projected_keys, width}; }
  /// The shape of the projected values.
  Shape value_shape() const { return {batch, key_heads, projected_keys, value_width}; }
};

/// The sizes of a call of LinformerAttention, from its unchecked tensors.
template <class T>
LinformerShape shape_of(const LinformerInputs<T>& inputs) {
  return detail::family_shape<LinformerShape>(inputs, inputs.key_projection.rows());
}

FOVEA_NAMESPACE_END
