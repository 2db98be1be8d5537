// SPDX-License-Identifier: MIT
/// \file
/// A user's function of logits, as called by kernels: for rows of a tile.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// A row of query-key pairs of one head: pair n has the positions query + query_step n and key +
/// key_step n.
struct PairRow {
  Index batch = 0;       ///< number of the sequence
  Index head = 0;        ///< number of the query head
  Index query = 0;       ///< position of the first query
  Index query_step = 0;  ///< stride of queries
  Index key = 0;         ///< position of the first key
  Index key_step = 0;    ///< stride of keys
  Index count = 0;       ///< number of pairs
  Index row = 0;         ///< row of the first query; rows are query_step apart, as positions are
};

/// A modifier of logits.
template <class T>
struct ScoreModifierArgs {
  /// The user's object, passed to the functions.
  const void* modifier = nullptr;
  /// Replaces logits[n] by the modified logit of pair n. Null: no modifier.
  void (*value)(const void* modifier, const PairRow& pairs, T* logits) noexcept = nullptr;
  /// Writes slopes[n], the derivative of the modified logit of pair n with respect to logits[n].
  /// Called by backward passes.
  void (*derivative)(const void* modifier, const PairRow& pairs, const T* logits,
                     T* slopes) noexcept = nullptr;

  /// Whether there is a modifier.
  constexpr bool is_used() const { return value != nullptr; }
};

FOVEA_NAMESPACE_END
