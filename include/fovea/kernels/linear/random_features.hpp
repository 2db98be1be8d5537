// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the kernels of positive random features (Choromanski et al. 2020, FAVOR+; MATHS.md,
/// section 7). Their bodies are random_features.inl.hpp and random_features_grad.inl.hpp, compiled
/// once per instruction-set level; table.hpp selects the level.
///
/// A row x has the logits l_r = <w_r, xh> - |xh|^2 / 2 with xh = x / D^(1/4), and the features
/// exp(l_r). Keys are kept as exp(l_r - ref_r) with a reference for each feature, which no visible
/// logit exceeds, and queries as exp(l_r + ref_r - max_r (l_r + ref_r)): the subtracted terms
/// cancel between numerators and denominators, and so does |xh|^2 / 2 of a query.
#pragma once

#include "fovea/kernels/linear/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// The maximum number of rows of a feature-kernel call.
inline constexpr Index kFeatureRows = 128;

/// The margin of a running reference above the logit that set it. Only a larger logit raises it
/// again, so this is rare.
template <class T>
inline constexpr T kReferenceMargin = 16;

/// Prepares a projection, once per call.
template <class T>
struct ProjectionArgs {
  Matrix<const T> projection;  ///< W [R, D]
  Index features = 0;          ///< R
  Index width = 0;             ///< D
  T factor = 0;                ///< D^(-1/4)
  T* turned = nullptr;         ///< [D, R padded]: factor W^T, written
  T* rows = nullptr;           ///< [R, D padded]: factor W, written; null: not requested
};

/// Elements of ProjectionArgs::turned.
template <class T>
constexpr Index turned_elements(Index features, Index width) {
  return padded_row<T>(width) * padded_row<T>(features);
}

/// The logits of some rows.
template <class T>
struct FeatureLogitsArgs {
  Matrix<const T> x;          ///< [count + next, D]
  Index count = 0;            ///< number of rows, at most kFeatureRows
  Index next = 0;             ///< following rows to prefetch
  Index width = 0;            ///< D
  Index features = 0;         ///< R
  const T* turned = nullptr;  ///< from ProjectionArgs
  T norm_factor = 0;  ///< for keys D^(-1/2) / 2, the factor of the subtracted |x|^2; for queries 0
  T* logits = nullptr;   ///< [count, R padded], written; arbitrary beyond R
  T* scratch = nullptr;  ///< [kFeatureRows, D padded]
};

/// Logits of rows, overwritten by their features.
template <class T>
struct FeatureRowsArgs {
  T* rows = nullptr;   ///< [count, R padded]: logits, then features, 0 beyond R
  Index count = 0;     ///< number of rows
  Index features = 0;  ///< R
  /// [R padded], +infinity beyond R. `maxima` writes it, the others read it.
  T* reference = nullptr;
  bool is_first = false;  ///< of `maxima`: whether the reference is still unset
  Index mapped = 0;       ///< of `keys`: written, the number of converted rows
};

/// Raises a running reference for one more key.
template <class T>
struct RaiseReferenceArgs {
  const T* logits = nullptr;  ///< [R] of the key
  Index features = 0;         ///< R
  T* reference = nullptr;     ///< [R padded], raised where the logit is above it
  bool is_first = false;      ///< whether the key is the first: the reference is unset
  T* factors = nullptr;       ///< [R padded], written: the factors of earlier features
};

/// Multiplies a stream's sums (LinearStreamArgs::state), each feature by its factor.
template <class T>
struct ScaleStreamArgs {
  T* state = nullptr;          ///< linear_state_elements(...) of one map
  Index width = 0;             ///< R
  Index value_width = 0;       ///< Dv
  const T* factors = nullptr;  ///< [R padded]
};

/// Rescales the sums of some segments to one reference. Each segment's sums are followed by its
/// reference, [R padded]; the first one's becomes the common one, the others 0. If there are
/// segments elsewhere, the common reference is given, and all local ones become 0.
template <class T>
struct JoinReferencesArgs {
  T* sums = nullptr;      ///< [segments, elements]: linear_sum_elements(...) of one map, reference
  Index segments = 0;     ///< number of segments
  Index elements = 0;     ///< stride of segments
  Index width = 0;        ///< R
  Index value_width = 0;  ///< Dv
  const T* largest = nullptr;  ///< [R padded] of all segments; null: no others
};

/// Computes gradients of logits, and of rows, from gradients of features.
template <class T>
struct FeatureGradArgs {
  const T* features_of = nullptr;  ///< [count, R padded]: the features
  T* d_rows = nullptr;             ///< [count, R padded]: gradients of features, then of logits
  Index count = 0;                 ///< number of rows, at most kFeatureRows
  Index features = 0;              ///< R
  Index width = 0;                 ///< D
  Matrix<const T> x;               ///< [count, D]
  T norm_factor = 0;               ///< as in FeatureLogitsArgs
  const T* rows = nullptr;         ///< from ProjectionArgs: [R, D padded]
  Matrix<T> d_x;                   ///< [count, D], written; null data: not requested
  /// [2, R, D padded], to which sum_i d_logits_ir x_ic is added in two words; null: not requested
  T* d_projection = nullptr;
  T* scratch = nullptr;  ///< [2 kFeatureRows, D padded]
};

/// Sums parts of the gradient of a projection, in order.
template <class T>
struct ProjectionGradArgs {
  const T* parts = nullptr;  ///< [count, 2, R, D padded]
  Index count = 0;           ///< number of parts
  Index features = 0;        ///< R
  Index width = 0;           ///< D
  T factor = 0;              ///< D^(-1/4)
  /// [2, R, D padded]: the sum of the parts before these in two words, to which these are added;
  /// null: none
  T* sums = nullptr;
  Matrix<T> d_projection;  ///< [R, D], written; null data: not requested
};

FOVEA_NAMESPACE_END
