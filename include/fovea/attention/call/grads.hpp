// SPDX-License-Identifier: MIT
/// \file
/// The gradients that a backward pass writes, for each family. Gradients without a tensor are not
/// written. Each is the gradient of the loss with respect to the input of the same name, and has
/// its shape.
#pragma once

#include "fovea/core/members.hpp"

FOVEA_NAMESPACE_BEGIN

/// The gradients of softmax attention.
template <class T>
struct SoftmaxGrads {
  ViewMember<T> q = {};  ///< [B, Hq, Nq, D]
  ViewMember<T> k = {};  ///< [B, Hk, Nk, D]
  ViewMember<T> v = {};  ///< [B, Hk, Nk, Dv]
  /// The shape of bias; where bias has extent 1, summed over the broadcast dimension.
  ViewMember<T> bias = {};
  SpanMember<T> sink = {};  ///< [Hq]

  FOVEA_TENSORS(q, k, v, bias, sink)
};

/// The gradients of the loss with respect to the outputs of `forward`, which softmax attention's
/// backward pass reads.
template <class T>
struct SoftmaxOutGrads {
  ViewMember<const T> d_out = {};  ///< [B, Hq, Nq, Dv]: gradient of out
  ViewMember<const T> d_lse = {};  ///< [B, Hq, Nq, 1]: gradient of lse; 0 if not given
};

/// The gradients of linear attention, and of all operators whose only parameters are q, k and v.
template <class T>
struct LinearGrads {
  ViewMember<T> q = {};  ///< [B, Hq, Nq, D]
  ViewMember<T> k = {};  ///< [B, Hk, Nk, D]
  ViewMember<T> v = {};  ///< [B, Hk, Nk, Dv]

  FOVEA_TENSORS(q, k, v)
};

/// The gradients of attention over lists of keys: the lists have none.
template <class T>
using IndexedGrads = LinearGrads<T>;
/// The gradients of Smart Bird attention: the sketch has none.
template <class T>
using SmartBirdGrads = LinearGrads<T>;

/// The gradients of the delta rule.
template <class T>
struct DeltaGrads {
  ViewMember<T> q = {};     ///< [B, Hq, Nq, D]
  ViewMember<T> k = {};     ///< [B, Hk, Nk, D]
  ViewMember<T> v = {};     ///< [B, Hk, Nk, Dv]
  ViewMember<T> beta = {};  ///< [B, Hk, Nk, 1]

  FOVEA_TENSORS(q, k, v, beta)
};

/// The gradients of FMM attention if all its terms are feature maps.
template <class T>
struct FmmGrads {
  ViewMember<T> q = {};            ///< [B, Hq, Nq, D]
  ViewMember<T> k = {};            ///< [B, Hk, Nk, D]
  ViewMember<T> v = {};            ///< [B, Hk, Nk, Dv]
  ViewMember<T> near_logits = {};  ///< the shape of near_logits
  ViewMember<T> far_logits = {};   ///< the shape of far_logits

  FOVEA_TENSORS(q, k, v, near_logits, far_logits)
};

/// The gradients of FMM attention if one of its terms is a delta rule.
template <class T>
struct FmmDeltaGrads {
  ViewMember<T> q = {};            ///< [B, Hq, Nq, D]
  ViewMember<T> k = {};            ///< [B, Hk, Nk, D]
  ViewMember<T> v = {};            ///< [B, Hk, Nk, Dv]
  ViewMember<T> beta = {};         ///< [B, Hk, Nk, 1]
  ViewMember<T> near_logits = {};  ///< the shape of near_logits
  ViewMember<T> far_logits = {};   ///< the shape of far_logits

  FOVEA_TENSORS(q, k, v, beta, near_logits, far_logits)
};

/// The gradients of Performer attention.
template <class T>
struct PerformerGrads {
  ViewMember<T> q = {};           ///< [B, Hq, Nq, D]
  ViewMember<T> k = {};           ///< [B, Hk, Nk, D]
  ViewMember<T> v = {};           ///< [B, Hk, Nk, Dv]
  ViewMember<T> projection = {};  ///< [1, 1, R, D], summed over batch and heads

  FOVEA_TENSORS(q, k, v, projection)
};

/// The gradients of FSAT attention.
template <class T>
struct FsatGrads {
  ViewMember<T> q = {};         ///< [B, Hq, L, D]
  ViewMember<T> k = {};         ///< [B, Hk, L, D]
  ViewMember<T> v = {};         ///< [B, Hk, L, Dv]
  ViewMember<T> dominant = {};  ///< [B, Hq, L, M]

  FOVEA_TENSORS(q, k, v, dominant)
};

FOVEA_NAMESPACE_END
