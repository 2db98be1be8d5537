// SPDX-License-Identifier: MIT
/// \file
/// The options, inputs, saved tensors and gradients of Reformer attention, and its random
/// projection.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "fovea/core/members.hpp"
#include "fovea/core/philox.hpp"

FOVEA_NAMESPACE_BEGIN

/// The chunk that precedes the first one of a round.
enum class FirstChunk {
  wrap,            ///< the last one of the same round
  none,            ///< none: rows of the first chunk see only that chunk
  previous_round,  ///< the last one of the previous round (cyclically)
};

/// Options of ReformerAttention.
struct ReformerOptions {
  /// c, the rows of a chunk: a divisor of N.
  Index chunk = 64;
  /// The number of hash rounds, at least 1.
  Index rounds = 4;
  /// The number of buckets of a round, even and at least 2.
  Index buckets = 64;
  /// If true, row i sees no row after itself.
  bool causal = false;
  /// The chunk that precedes the first one of a round.
  FirstChunk before_first = FirstChunk::wrap;
  /// Whether rows see rows of their chunks that are in another bucket.
  bool across_buckets = true;
  /// Whether the logarithm of the number of times that a row is a candidate, over all rounds, is
  /// subtracted from its logit, so that a row found in several rounds counts once.
  bool correct_duplicates = false;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// The seed of the projection if none is given.
  std::uint64_t seed = 0;
};

/// The inputs of Reformer attention.
template <class T>
struct ReformerInputs {
  static_assert(std::is_floating_point_v<T>, "fovea: Reformer attention supports float and double");

  ViewMember<const T> qk = {};  ///< [B, H, N, D]: queries and, after normalisation, keys
  ViewMember<const T> v = {};   ///< [B, H, N, Dv]
  /// [B]: batch entry b has the rows [0, key_lengths[b]), of qk and v. Empty: all N.
  IndexSpan key_lengths = {};
  /// [1, rounds, D, buckets / 2], optional: the projections for hashing, instead of random ones.
  ViewMember<const T> projection = {};

  FOVEA_TENSORS(qk, v, projection)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor == "qk") return {s.batch, s.heads, s.rows, s.width};
    if (tensor == "v") return {s.batch, s.heads, s.rows, s.value_width};
    return {};
  }
};

/// What Reformer attention saves. A member is written only if a tensor is given.
template <class T>
struct ReformerSaved {
  /// [B, H, N, 1]: the natural logarithm of the row's sum of exp(logit) over the candidates of all
  /// rounds; -infinity from a key length on.
  ViewMember<T> lse = {};
  /// [B, H, N, rounds]: the same for each round. If it is given, the backward pass does not compute
  /// it again; the gradients have the same bits.
  ViewMember<T> round_lse = {};

  FOVEA_TENSORS(lse, round_lse)
};

/// The gradients of Reformer attention. The projection has none, since buckets are not
/// differentiated.
template <class T>
struct ReformerGrads {
  ViewMember<T> qk = {};  ///< [B, H, N, D]: as queries and, through their normalisation, as keys
  ViewMember<T> v = {};   ///< [B, H, N, Dv]

  FOVEA_TENSORS(qk, v)
};

/// The sizes of a call of ReformerAttention.
struct ReformerShape {
  Index batch = 1;        ///< B
  Index heads = 1;        ///< H
  Index rows = 0;         ///< N
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
};

/// The sizes of a call, from its unchecked tensors.
template <class T>
ReformerShape shape_of(const ReformerInputs<T>& inputs) {
  return {inputs.qk.batch(), inputs.qk.heads(), inputs.qk.rows(), inputs.qk.width(),
          inputs.v.width()};
}

/// Element (d, c) of a round's projection if none is given: a normally distributed number by Box
/// and Muller, sqrt(-2 ln u1) cos(2 pi u2), computed in double, with u1 and u2 the
/// uniform_draw<double>(seed, round, 0, d, 2 c) and (seed, round, 0, d, 2 c + 1).
inline double reformer_projection(std::uint64_t seed, Index round, Index d, Index c) {
  constexpr double two_pi = 6.283185307179586476925;
  const auto u1 = uniform_draw<double>(seed, round, 0, d, 2 * c);
  const auto u2 = uniform_draw<double>(seed, round, 0, d, 2 * c + 1);
  return std::sqrt(-2 * std::log(u1)) * std::cos(two_pi * u2);
}

/// The shape of the output.
template <class T>
Shape out_shape(const ReformerInputs<T>& inputs) {
  return {inputs.qk.batch(), inputs.qk.heads(), inputs.qk.rows(), inputs.v.width()};
}

FOVEA_NAMESPACE_END
