// SPDX-License-Identifier: MIT
/// \file
/// The inputs and gradients of Longformer attention: those of softmax attention, and the separate
/// projections for rows of global positions.
#pragma once

#include "fovea/attention/call/grads.hpp"
#include "fovea/attention/call/inputs.hpp"
#include "fovea/core/error.hpp"

FOVEA_NAMESPACE_BEGIN

/// The inputs of Longformer attention; everything but q, k and v is optional.
template <class T>
struct LongformerInputs {
  ViewMember<const T> q = {};                      ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};                      ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};                      ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};                      ///< as in SoftmaxInputs
  IndexSpan cu_seqlens_q = {};                     ///< as in SoftmaxInputs
  IndexSpan cu_seqlens_k = {};                     ///< as in SoftmaxInputs
  IndexSpan first_positions = {};                  ///< as in SoftmaxInputs
  ViewMember<const Compute<T>> bias = {};          ///< as in SoftmaxInputs
  ViewMember<const bool> mask = {};                ///< as in SoftmaxInputs
  SpanMember<const Compute<T>> alibi_slopes = {};  ///< as in SoftmaxInputs
  SpanMember<const Compute<T>> sink = {};          ///< as in SoftmaxInputs
  /// [B, Hq, Nq, D]: replaces q in the rows of global positions; other rows of it are not read.
  /// Give all of global_q, global_k and global_v, or none.
  ViewMember<const T> global_q = {};
  ViewMember<const T> global_k = {};  ///< [B, Hk, Nk, D]: replaces k for those rows
  ViewMember<const T> global_v = {};  ///< [B, Hk, Nk, Dv]: replaces v for those rows

  FOVEA_TENSORS(q, k, v, bias, mask, alibi_slopes, sink, global_q, global_k, global_v)

  /// Whether the rows of global positions have separate projections.
  bool has_global() const { return !global_q.empty() || !global_k.empty() || !global_v.empty(); }

  /// The inputs of all rows if there is one set of projections.
  constexpr SoftmaxInputs<T> shared() const {
    return {q,
            k,
            v,
            key_lengths,
            cu_seqlens_q,
            cu_seqlens_k,
            first_positions,
            bias,
            mask,
            alibi_slopes,
            sink};
  }
  /// The inputs of the rows of global positions.
  SoftmaxInputs<T> global() const {
    SoftmaxInputs<T> made = shared();
    made.q = global_q;
    made.k = global_k;
    made.v = global_v;
    return made;
  }

  /// A decoder's inputs.
  /// \throws std::invalid_argument if global rows have separate projections; decoders have none
  // NOLINTNEXTLINE(google-explicit-constructor): a decoder takes these
  operator SoftmaxInputs<T>() const {
    if (has_global()) {
      refuse_given("LongformerAttention", "global_q", "a decoder keeps one set of keys and values");
    }
    return shared();
  }
};

/// The gradients of Longformer attention. Those of bias and sink are not available if the rows of
/// global positions have separate projections.
template <class T>
struct LongformerGrads {
  ViewMember<T> q = {};         ///< [B, Hq, Nq, D]
  ViewMember<T> k = {};         ///< [B, Hk, Nk, D]
  ViewMember<T> v = {};         ///< [B, Hk, Nk, Dv]
  ViewMember<T> bias = {};      ///< as in SoftmaxGrads
  SpanMember<T> sink = {};      ///< [Hq]
  ViewMember<T> global_q = {};  ///< [B, Hq, Nq, D]: 0 in rows that are not global
  ViewMember<T> global_k = {};  ///< [B, Hk, Nk, D]
  ViewMember<T> global_v = {};  ///< [B, Hk, Nk, Dv]

  /// The gradients of shared().
  constexpr SoftmaxGrads<T> shared() const { return {q, k, v, bias, sink}; }
  /// The gradients of global().
  SoftmaxGrads<T> global() const {
    SoftmaxGrads<T> made;
    made.q = global_q;
    made.k = global_k;
    made.v = global_v;
    return made;
  }

  FOVEA_TENSORS(q, k, v, bias, sink, global_q, global_k, global_v)
};

FOVEA_NAMESPACE_END
