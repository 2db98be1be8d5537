// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of positive random features read and write (Choromanski et al. 2020, FAVOR+;
/// MATHS.md, section 7). Their bodies are random_features.inl.hpp and random_features_grad.inl.hpp,
/// compiled once for each instruction-set level; table.hpp chooses the level.
///
/// A row x has the logits l_r = <w_r, xh> - |xh|^2 / 2 with xh = x / D^(1/4), and the features
/// exp(l_r). Keys are kept as exp(l_r - ref_r) with a reference for each feature, which no visible
/// logit exceeds, and queries as exp(l_r + ref_r - max_r (l_r + ref_r)): what was subtracted
/// cancels between numerators and denominators, and so does |xh|^2 / 2 of a query.
#pragma once

#include "fovea/kernels/linear/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// The largest number of rows that the kernels of features take at once.
inline constexpr Index kFeatureRows = 128;

/// How far above the logit that it comes of a running reference lies. Only a logit beyond that
/// raises it again, so that this is rare.
template <class T>
inline constexpr T kReferenceMargin = 16;

/// What is made of a projection once for a call.
template <class T>
struct ProjectionArgs {
  Matrix<const T> projection;  ///< W [R, D]
  Index features = 0;          ///< R
  Index width = 0;             ///< D
  T factor = 0;                ///< D^(-1/4)
  T* turned = nullptr;         ///< [D, R padded]: factor W^T, written
  T* rows = nullptr;           ///< [R, D padded]: factor W, written; null: not wanted
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
  Index next = 0;             ///< rows behind them for which memory is asked
  Index width = 0;            ///< D
  Index features = 0;         ///< R
  const T* turned = nullptr;  ///< what ProjectionArgs made
  T norm_factor = 0;          ///< of keys D^(-1/2) / 2, by which |x|^2 is taken off; of queries 0
  T* logits = nullptr;        ///< [count, R padded], written, with anything behind R
  T* scratch = nullptr;       ///< [kFeatureRows, D padded]
};

/// Logits of rows, which give way to their features.
template <class T>
struct FeatureRowsArgs {
  T* rows = nullptr;   ///< [count, R padded]: logits, and then features, with 0 behind R
  Index count = 0;     ///< number of rows
  Index features = 0;  ///< R
  /// [R padded], with +infinity behind R. `maxima` writes it, the others read it.
  T* reference = nullptr;
  bool is_first = false;  ///< of `maxima`: whether the reference holds nothing yet
  Index mapped = 0;       ///< of `keys`: written, the number of rows that gave way
};

/// Raises a running reference to that of one more key.
template <class T>
struct RaiseReferenceArgs {
  const T* logits = nullptr;  ///< [R] of the key
  Index features = 0;         ///< R
  T* reference = nullptr;     ///< [R padded], changed where the logit is above it
  bool is_first = false;      ///< whether the key is the first one: the reference holds nothing yet
  T* factors = nullptr;       ///< [R padded], written: what earlier features are multiplied by
};

/// Multiplies what a stream of sums holds (LinearStreamArgs::state), each feature by its factor.
template <class T>
struct ScaleStreamArgs {
  T* state = nullptr;          ///< linear_state_elements(...) of one map
  Index width = 0;             ///< R
  Index value_width = 0;       ///< Dv
  const T* factors = nullptr;  ///< [R padded]
};

/// Brings the sums of some segments to one reference. Behind the sums of each stands its reference,
/// [R padded]; that of the first one becomes that of all, and the others 0. If there are segments
/// elsewhere, too, the largest reference of all is given, and those that stand here become 0.
template <class T>
struct JoinReferencesArgs {
  T* sums = nullptr;      ///< [segments, elements]: linear_sum_elements(...) of one map, reference
  Index segments = 0;     ///< number of segments
  Index elements = 0;     ///< distance of the sums of two segments
  Index width = 0;        ///< R
  Index value_width = 0;  ///< Dv
  const T* largest = nullptr;  ///< [R padded] of all segments; null: there are no others
};

/// The gradient of features made that of the logits, and that of the rows behind these.
template <class T>
struct FeatureGradArgs {
  const T* features_of = nullptr;  ///< [count, R padded]: the features
  T* d_rows = nullptr;  ///< [count, R padded]: gradients of features; they become those of logits
  Index count = 0;      ///< number of rows, at most kFeatureRows
  Index features = 0;   ///< R
  Index width = 0;      ///< D
  Matrix<const T> x;    ///< [count, D]
  T norm_factor = 0;    ///< as in FeatureLogitsArgs
  const T* rows = nullptr;  ///< what ProjectionArgs made: [R, D padded]
  Matrix<T> d_x;            ///< [count, D], written; null data: not wanted
  /// [2, R, D padded], to which sum_i d_logits_ir x_ic is added in two words; null: not wanted
  T* d_projection = nullptr;
  T* scratch = nullptr;  ///< [2 kFeatureRows, D padded]
};

/// Adds up parts of the gradient of a projection, in their order.
template <class T>
struct ProjectionGradArgs {
  const T* parts = nullptr;  ///< [count, 2, R, D padded]
  Index count = 0;           ///< number of parts
  Index features = 0;        ///< R
  Index width = 0;           ///< D
  T factor = 0;              ///< D^(-1/4)
  /// [2, R, D padded]: the sum of the parts before these in two words, to which these are added;
  /// null: there are none before
  T* sums = nullptr;
  Matrix<T> d_projection;  ///< [R, D], written; null data: not wanted
};

FOVEA_NAMESPACE_END
