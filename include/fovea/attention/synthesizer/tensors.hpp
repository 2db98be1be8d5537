// SPDX-License-Identifier: MIT
/// \file
/// The inputs and gradients of the three forms of the Synthesizer (Tay et al. 2021; MATHS.md,
/// section 7). They have no queries and keys: logits depend on positions, or on one token alone.
#pragma once

#include <string_view>

#include "fovea/attention/call/shapes.hpp"
#include "fovea/core/members.hpp"
#include "fovea/core/scalar.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of every form of the Synthesizer.
struct SynthesizerOptions {
  /// If true, row i sees no key after its own position.
  bool causal = false;
};

/// The inputs of the random Synthesizer.
template <class T>
struct RandomSynthesizerInputs {
  /// [1 or B, Hq, N, N]: the logits of each head, for all sequences or for each. -infinity hides a
  /// pair.
  ViewMember<const Compute<T>> r = {};
  ViewMember<const T> v = {};  ///< [B, Hk, N, Dv], where Hk divides Hq
  /// [B]: sequence b has the keys [0, key_lengths[b]). Empty: it has all N keys.
  IndexSpan key_lengths = {};

  FOVEA_TENSORS(r, v)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor == "r") return {1, s.query_heads, s.queries, s.queries};
    return {s.batch, s.key_heads, s.queries, s.value_width};
  }
};

/// The inputs of the factorised Synthesizer.
template <class T>
struct FactorisedSynthesizerInputs {
  ViewMember<const T> r1 = {};  ///< [1 or B, Hq, N, r]: the query factor
  ViewMember<const T> r2 = {};  ///< [1 or B, Hk, N, r]: the key factor
  ViewMember<const T> v = {};   ///< [B, Hk, N, Dv], where Hk divides Hq
  IndexSpan key_lengths = {};   ///< [B], or empty, as in RandomSynthesizerInputs

  FOVEA_TENSORS(r1, r2, v)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor == "r1") return {1, s.query_heads, s.queries, s.width};
    if (tensor == "r2") return {1, s.key_heads, s.queries, s.width};
    return {s.batch, s.key_heads, s.queries, s.value_width};
  }
};

/// The inputs of the dense Synthesizer. \tparam T float or double
template <class T>
struct DenseSynthesizerInputs {
  ViewMember<const T> x = {};   ///< [B, Hq or 1, N, D]: the tokens, for each head or shared by all
  ViewMember<const T> w1 = {};  ///< [1 or B, Hq, D, M]: the weights of the hidden layer
  ViewMember<const T> b1 = {};  ///< [as w1, Hq, 1, M], optional: its biases
  /// [1 or B, Hk, M, Nmax], of which the first N columns are read: the weights of the keys.
  ViewMember<const T> w2 = {};
  ViewMember<const T> b2 = {};  ///< [as w2, Hk, 1, Nmax], optional: their biases
  ViewMember<const T> v = {};   ///< [B, Hk, N, Dv], where Hk divides Hq
  IndexSpan key_lengths = {};   ///< [B], or empty, as in RandomSynthesizerInputs

  FOVEA_TENSORS(x, w1, b1, w2, b2, v)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor == "x") return {s.batch, 1, s.queries, s.width};
    if (tensor == "w1") return {s.batch, s.query_heads, s.width, s.hidden};
    if (tensor == "w2") return {s.batch, s.key_heads, s.hidden, s.queries};
    if (tensor == "v") return {s.batch, s.key_heads, s.queries, s.value_width};
    return {};
  }
};

/// The gradients of the random Synthesizer.
template <class T>
struct RandomSynthesizerGrads {
  ViewMember<T> r = {};  ///< the shape of r: where it has batch 1, the sum over the sequences
  ViewMember<T> v = {};  ///< [B, Hk, N, Dv]

  FOVEA_TENSORS(r, v)
};

/// The gradients of the factorised Synthesizer.
template <class T>
struct FactorisedSynthesizerGrads {
  ViewMember<T> r1 = {};  ///< the shape of r1: where it has batch 1, the sum over the sequences
  ViewMember<T> r2 = {};  ///< the shape of r2, likewise
  ViewMember<T> v = {};   ///< [B, Hk, N, Dv]

  FOVEA_TENSORS(r1, r2, v)
};

/// The gradients of the dense Synthesizer. If several sequences or heads share an input, its
/// gradient is the sum over them. Gradients of columns of w2 and b2 that are not read are 0.
template <class T>
struct DenseSynthesizerGrads {
  ViewMember<T> x = {};   ///< the shape of x
  ViewMember<T> w1 = {};  ///< the shape of w1
  ViewMember<T> b1 = {};  ///< the shape of b1
  ViewMember<T> w2 = {};  ///< the shape of w2
  ViewMember<T> b2 = {};  ///< the shape of b2
  ViewMember<T> v = {};   ///< [B, Hk, N, Dv]

  FOVEA_TENSORS(x, w1, b1, w2, b2, v)
};

/// The sizes of a call of DenseSynthesizerAttention: those of AttentionShape, and M. (A call of the
/// random form has the width 0, one of the factorised form the width r.)
struct DenseSynthesizerShape {
  Index batch = 1;        ///< B
  Index query_heads = 1;  ///< Hq, a multiple of Hk
  Index key_heads = 1;    ///< Hk
  Index queries = 0;      ///< N
  Index keys = 0;         ///< N
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  Index hidden = 0;       ///< M, the width of the hidden layer

  /// The sizes that all families have.
  // NOLINTNEXTLINE(google-explicit-constructor): what takes the common sizes takes these
  operator AttentionShape() const { return detail::common_shape(*this); }
};

/// The shape of the output.
template <class T>
Shape out_shape(const RandomSynthesizerInputs<T>& in) {
  return {in.v.batch(), in.r.heads(), in.v.rows(), in.v.width()};
}
/// The shape of the output.
template <class T>
Shape out_shape(const FactorisedSynthesizerInputs<T>& in) {
  return {in.v.batch(), in.r1.heads(), in.v.rows(), in.v.width()};
}
/// The shape of the output.
template <class T>
Shape out_shape(const DenseSynthesizerInputs<T>& in) {
  return {in.v.batch(), in.w1.heads(), in.v.rows(), in.v.width()};
}

FOVEA_NAMESPACE_END
