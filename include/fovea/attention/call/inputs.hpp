// SPDX-License-Identifier: MIT
/// \file
/// The inputs of each operator family. All structs are flat. Those in this file that have q, k and
/// v begin with the same six members, so that code that needs no others works for all of them;
/// those of operators that read positions have first_positions next. Inputs contain only what the
/// operator reads.
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>

#include "fovea/core/members.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The shape of a tensor of several families in a call, or of its gradient: by its name, the one
/// that needs most memory if there is a choice. {} if it needs none.
/// \param s the operator's Shape
template <class S>
Shape shape_in_call(const S& s, std::string_view tensor) {
  if (tensor == "q") return {s.batch, s.query_heads, s.queries, s.width};
  if (tensor == "k") return {s.batch, s.key_heads, s.keys, s.width};
  if (tensor == "v") return {s.batch, s.key_heads, s.keys, s.value_width};
  if (tensor == "beta") return {s.batch, s.key_heads, s.keys, 1};
  if (tensor.ends_with("_logits")) return {1, s.query_heads, 1, s.value_width};
  return {};
}

}  // namespace detail

/// The inputs of softmax attention over patterns; everything but q, k and v is optional. Other
/// tensors of numbers have the type of the arithmetic, `Compute<T>`, which is float for 16-bit
/// tensors.
template <class T>
struct SoftmaxInputs {
  ViewMember<const T> q = {};  ///< [B, Hq, Nq, D]
  /// [B, Hk, Nk, D], where Hk divides Hq: query head h reads key head h / (Hq / Hk).
  ViewMember<const T> k = {};
  ViewMember<const T> v = {};  ///< [B, Hk, Nk, Dv]
  /// [B], 32-bit or 64-bit integers, like all lengths and ends of sequences: batch entry b has the
  /// keys [0, key_lengths[b]). Empty: all Nk keys.
  IndexSpan key_lengths = {};
  /// [S + 1], ascending from 0 to Nq, with B = 1: sequence s has the query rows [cu_seqlens_q[s],
  /// cu_seqlens_q[s + 1]). Empty: the sequences are not packed.
  IndexSpan cu_seqlens_q = {};
  /// [S + 1]: the same for the rows of k and v. Empty: as cu_seqlens_q.
  IndexSpan cu_seqlens_k = {};
  /// [B], or [S] if the sequences are packed: the position of query row 0 of each, overriding the
  /// options' alignment. Any position is allowed: negative, or after the last key.
  IndexSpan first_positions = {};
  /// [B, Hq, Nq, Nk], each of which may be 1 instead: added to the logits. -infinity hides the
  /// pair. There may be fewer columns than keys if key_lengths hide the keys beyond them.
  ViewMember<const Compute<T>> bias = {};
  /// [B, Hq, Nq, Nk], each of which may be 1 instead, or fewer columns as in bias: false hides the
  /// pair.
  ViewMember<const bool> mask = {};
  /// [Hq]: slope |i - j| is subtracted from the logits (ALiBi; Press, Smith and Lewis 2022).
  SpanMember<const Compute<T>> alibi_slopes = {};
  /// [Hq]: one more logit for each row, without a value: it takes probability, and counts in lse.
  SpanMember<const Compute<T>> sink = {};

  FOVEA_TENSORS(q, k, v, bias, mask, sink, alibi_slopes)
};

/// The inputs of linear attention: q, k, v, and the sequences' offsets, as in SoftmaxInputs.
template <class T>
struct LinearInputs {
  ViewMember<const T> q = {};      ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};      ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};      ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};      ///< [B], or empty
  IndexSpan cu_seqlens_q = {};     ///< [S + 1], or empty
  IndexSpan cu_seqlens_k = {};     ///< [S + 1], or empty
  IndexSpan first_positions = {};  ///< as in SoftmaxInputs, or empty

  FOVEA_TENSORS(q, k, v)
};

/// The inputs of the delta rule: those of linear attention, and beta.
template <class T>
struct DeltaInputs {
  ViewMember<const T> q = {};      ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};      ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};      ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};      ///< [B], or empty
  IndexSpan cu_seqlens_q = {};     ///< [S + 1], or empty
  IndexSpan cu_seqlens_k = {};     ///< [S + 1], or empty
  IndexSpan first_positions = {};  ///< as in SoftmaxInputs, or empty
  /// [B, Hk, Nk, 1]: each token's write rate, finite and at least 0. Required.
  ViewMember<const Compute<T>> beta = {};

  FOVEA_TENSORS(q, k, v, beta)
};

/// The inputs of FMM attention if all its terms are feature maps.
template <class T>
struct FmmInputs {
  ViewMember<const T> q = {};      ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};      ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};      ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};      ///< [B], or empty
  IndexSpan cu_seqlens_q = {};     ///< [S + 1], or empty
  IndexSpan cu_seqlens_k = {};     ///< [S + 1], or empty
  IndexSpan first_positions = {};  ///< as in SoftmaxInputs, or empty
  /// [1, Hq, 1, Dv], where Hq and Dv may be 1 instead: the near field has the weight
  /// sigmoid(near_logits). Default: the weight 1.
  ViewMember<const Compute<T>> near_logits = {};
  /// The same for the far field.
  ViewMember<const Compute<T>> far_logits = {};

  FOVEA_TENSORS(q, k, v, near_logits, far_logits)
};

/// The inputs of FMM attention if one of its terms is a delta rule.
template <class T>
struct FmmDeltaInputs {
  ViewMember<const T> q = {};                     ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};                     ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};                     ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};                     ///< [B], or empty
  IndexSpan cu_seqlens_q = {};                    ///< [S + 1], or empty
  IndexSpan cu_seqlens_k = {};                    ///< [S + 1], or empty
  IndexSpan first_positions = {};                 ///< as in SoftmaxInputs, or empty
  ViewMember<const Compute<T>> beta = {};         ///< as in DeltaInputs
  ViewMember<const Compute<T>> near_logits = {};  ///< as in FmmInputs
  ViewMember<const Compute<T>> far_logits = {};   ///< as in FmmInputs

  FOVEA_TENSORS(q, k, v, beta, near_logits, far_logits)
};

/// The inputs of Performer attention: those of linear attention, and the projection.
template <class T>
struct PerformerInputs {
  ViewMember<const T> q = {};      ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};      ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};      ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};      ///< [B], or empty
  IndexSpan cu_seqlens_q = {};     ///< [S + 1], or empty
  IndexSpan cu_seqlens_k = {};     ///< [S + 1], or empty
  IndexSpan first_positions = {};  ///< as in SoftmaxInputs, or empty
  /// [1, 1, R, D]: the projection W of all heads, R random features (draw_projection draws one; an
  /// Eigen matrix [R, D] works, too). Required.
  ViewMember<const Compute<T>> projection = {};

  FOVEA_TENSORS(q, k, v, projection)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor == "projection") return {1, 1, s.features, s.width};
    return detail::shape_in_call(s, tensor);
  }
};

/// The inputs of attention over lists of keys.
template <class T>
struct IndexedInputs {
  ViewMember<const T> q = {};      ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};      ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};      ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};      ///< [B], or empty
  IndexSpan cu_seqlens_q = {};     ///< [S + 1], or empty
  IndexSpan cu_seqlens_k = {};     ///< [S + 1], or empty
  IndexSpan first_positions = {};  ///< as in SoftmaxInputs, or empty
  /// [B, Hq, Nq, K]: each row's keys, strictly ascending, and -1 after the last one. Required.
  ViewMember<const Index> indices = {};

  FOVEA_TENSORS(q, k, v, indices)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor == "indices") return {s.batch, s.query_heads, s.queries, s.keys_per_row};
    return detail::shape_in_call(s, tensor);
  }
};

/// The inputs of Smart Bird attention.
template <class T>
struct SmartBirdInputs {
  ViewMember<const T> q = {};                  ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};                  ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};                  ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};                  ///< [B], or empty
  IndexSpan cu_seqlens_q = {};                 ///< [S + 1], or empty
  IndexSpan cu_seqlens_k = {};                 ///< [S + 1], or empty
  IndexSpan first_positions = {};              ///< as in SoftmaxInputs, or empty
  ViewMember<const Compute<T>> sketch_q = {};  ///< as in SketchInputs
  ViewMember<const Compute<T>> sketch_k = {};  ///< as in SketchInputs
  ViewMember<const Compute<T>> draws = {};     ///< as in SketchInputs

  FOVEA_TENSORS(q, k, v, sketch_q, sketch_k, draws)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor == "sketch_q") return {s.batch, 1, s.queries, s.sketch_width};
    if (tensor == "sketch_k") return {s.batch, 1, s.keys, s.sketch_width};
    return detail::shape_in_call(s, tensor);
  }
};

/// The inputs of the choice of keys by a sketch, without q, k and v.
/// \tparam T the type of the arithmetic, float or double
template <class T>
struct SketchInputs {
  /// [B, 1, Nq, d]: queries of the sketch that chooses keys. Required.
  ViewMember<const T> sketch_q = {};
  /// [B, 1, Nk, d]: keys of the sketch. Required.
  ViewMember<const T> sketch_k = {};
  IndexSpan key_lengths = {};      ///< [B], or empty
  IndexSpan cu_seqlens_q = {};     ///< [S + 1], or empty
  IndexSpan cu_seqlens_k = {};     ///< [S + 1], or empty
  IndexSpan first_positions = {};  ///< as in SoftmaxInputs, or empty
  /// [B, Hq, Nq, Nk] in (0, 1): draws that replace those made from the seed; optional.
  ViewMember<const T> draws = {};

  FOVEA_TENSORS(sketch_q, sketch_k, draws)
};

/// The inputs of FSAT attention.
template <class T>
struct FsatInputs {
  ViewMember<const T> q = {};   ///< [B, Hq, L, D]
  ViewMember<const T> k = {};   ///< [B, Hk, L, D]
  ViewMember<const T> v = {};   ///< [B, Hk, L, Dv]
  IndexSpan key_lengths = {};   ///< [B], or empty
  IndexSpan cu_seqlens_q = {};  ///< [S + 1], or empty
  IndexSpan cu_seqlens_k = {};  ///< [S + 1], or empty
  /// [B, Hq, L, M]: the queries that are most likely to attend to each key, as real numbers (Ibar
  /// of FSAT, eq. 9). Required.
  ViewMember<const Compute<T>> dominant = {};
  /// [B, Hq, L, M], optional: the query of each slot's random edge, in place of the draws, at least
  /// 0 and before the sequence's end. Read if options.edges has random ones.
  ViewMember<const Index> random = {};

  FOVEA_TENSORS(q, k, v, dominant, random)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor == "dominant") return {s.batch, s.query_heads, s.keys, s.dominants};
    return detail::shape_in_call(s, tensor);
  }
};

namespace detail {

/// Any family's inputs, for tensors of T.
template <class In, class T>
concept InputsFor = std::is_aggregate_v<In> && requires(const In& inputs) {
  requires std::same_as<decltype(inputs.q), ViewMember<const T>>;
  requires std::same_as<decltype(inputs.k), ViewMember<const T>>;
  requires std::same_as<decltype(inputs.v), ViewMember<const T>>;
  inputs.for_each_tensor([](const char*, const auto&) {});
};

/// The scalar type of the inputs' q.
template <class In>
using InputScalar = typename decltype(In::q)::Scalar;

/// Any family's inputs.
template <class In>
concept AnyInputs = requires {
  typename InputScalar<In>;
  requires InputsFor<In, InputScalar<In>>;
};

/// The output's shape. Families without q have functions of the same name, so calls are
/// unqualified.
template <AnyInputs In>
Shape out_shape(const In& inputs) {
  return {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), inputs.v.width()};
}

/// The shape of a tensor that holds some numbers for each row of the output, such as lse.
template <class In>
Shape row_shape(const In& inputs, Index numbers = 1) {
  Shape shape = out_shape(inputs);
  shape[3] = numbers;
  return shape;
}

/// A `To` made from the members of `from`: converts one family's inputs to those of code shared by
/// several families.
template <class To, class From>
To inputs_as(const From& from) {
  To to;
  to.q = from.q;
  to.k = from.k;
  to.v = from.v;
  to.key_lengths = from.key_lengths;
  to.cu_seqlens_q = from.cu_seqlens_q;
  to.cu_seqlens_k = from.cu_seqlens_k;
  if constexpr (requires { to.first_positions = from.first_positions; }) {
    to.first_positions = from.first_positions;
  }
  if constexpr (requires { to.beta = from.beta; }) to.beta = from.beta;
  if constexpr (requires { to.near_logits = from.near_logits; }) to.near_logits = from.near_logits;
  if constexpr (requires { to.far_logits = from.far_logits; }) to.far_logits = from.far_logits;
  if constexpr (requires { to.projection = from.projection; }) to.projection = from.projection;
  return to;
}

/// The part of the inputs that the choice of keys reads.
template <class T>
SketchInputs<Compute<T>> sketch_of(const SmartBirdInputs<T>& inputs) {
  return {inputs.sketch_q,     inputs.sketch_k,        inputs.key_lengths, inputs.cu_seqlens_q,
          inputs.cu_seqlens_k, inputs.first_positions, inputs.draws};
}

/// The sketch's queries and keys, with their sequences, in the form of attention's inputs.
template <class T>
LinearInputs<T> tokens_of(const SketchInputs<T>& sketch) {
  return {sketch.sketch_q,     sketch.sketch_k,     sketch.sketch_k,       sketch.key_lengths,
          sketch.cu_seqlens_q, sketch.cu_seqlens_k, sketch.first_positions};
}

}  // namespace detail

FOVEA_NAMESPACE_END
