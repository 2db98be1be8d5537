// SPDX-License-Identifier: MIT
/// \file
/// The gradients that a backward pass writes, for each family, each only if it is given: those of
/// the loss with respect to the tensors of the inputs that have the same names, in their shapes.
#pragma once

#include <span>

#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

/// Of softmax attention. `for_each_tensor(visit)`, here and below, calls visit(name, tensor) for
/// every member.
template <class T>
struct SoftmaxGrads {
  View<T> q = {};     ///< [B, Hq, Nq, D]
  View<T> k = {};     ///< [B, Hk, Nk, D]
  View<T> v = {};     ///< [B, Hk, Nk, Dv]
  View<T> bias = {};  ///< the shape of bias: where that is 1, the sum over what it was broadcast to
  std::span<T> sink = {};  ///< [Hq]

  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("bias", bias);
    visit("sink", sink);
  }
};

/// Of linear attention, and of all that has parameters of no other kind.
template <class T>
struct LinearGrads {
  View<T> q = {};  ///< [B, Hq, Nq, D]
  View<T> k = {};  ///< [B, Hk, Nk, D]
  View<T> v = {};  ///< [B, Hk, Nk, Dv]

  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("q", q);
    visit("k", k);
    visit("v", v);
  }
};

/// Lists of keys, and what chooses them, have no gradients.
template <class T>
using IndexedGrads = LinearGrads<T>;
template <class T>
using SmartBirdGrads = LinearGrads<T>;

/// Of the delta rule.
template <class T>
struct DeltaGrads {
  View<T> q = {};     ///< [B, Hq, Nq, D]
  View<T> k = {};     ///< [B, Hk, Nk, D]
  View<T> v = {};     ///< [B, Hk, Nk, Dv]
  View<T> beta = {};  ///< [B, Hk, Nk, 1]

  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("beta", beta);
  }
};

/// Of FMM attention whose terms are feature maps.
template <class T>
struct FmmGrads {
  View<T> q = {};            ///< [B, Hq, Nq, D]
  View<T> k = {};            ///< [B, Hk, Nk, D]
  View<T> v = {};            ///< [B, Hk, Nk, Dv]
  View<T> near_logits = {};  ///< the shape of near_logits
  View<T> far_logits = {};   ///< the shape of far_logits

  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("near_logits", near_logits);
    visit("far_logits", far_logits);
  }
};

/// Of FMM attention one of whose terms is a delta rule.
template <class T>
struct FmmDeltaGrads {
  View<T> q = {};            ///< [B, Hq, Nq, D]
  View<T> k = {};            ///< [B, Hk, Nk, D]
  View<T> v = {};            ///< [B, Hk, Nk, Dv]
  View<T> beta = {};         ///< [B, Hk, Nk, 1]
  View<T> near_logits = {};  ///< the shape of near_logits
  View<T> far_logits = {};   ///< the shape of far_logits

  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("beta", beta);
    visit("near_logits", near_logits);
    visit("far_logits", far_logits);
  }
};

/// Of FSAT attention.
template <class T>
struct FsatGrads {
  View<T> q = {};         ///< [B, Hq, L, D]
  View<T> k = {};         ///< [B, Hk, L, D]
  View<T> v = {};         ///< [B, Hk, L, Dv]
  View<T> dominant = {};  ///< [B, Hq, L, M]

  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("dominant", dominant);
  }
};

FOVEA_NAMESPACE_END
