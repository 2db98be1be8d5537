// SPDX-License-Identifier: MIT
/// \file
/// The key blocks of a task of the backward pass.
#pragma once

#include <algorithm>
#include <array>

#include "fovea/patterns/any_pattern.hpp"
#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// One block of keys of a task.
template <class T>
struct KeyPart {
  Index number = 0;        ///< number of the block
  KeyBlock keys;           ///< its keys
  GradientRoles roles;     ///< the gradients that it takes part in
  Range blocks;            ///< query blocks that may see it
  Index row = 0;           ///< index of its first key among those of the task
  Matrix<const T> k = {};  ///< its rows, once a query sees it
  Matrix<const T> v = {};  ///< likewise
  bool is_seen = false;    ///< whether a query sees it
  bool begun = false;      ///< whether a query has added to its gradients
};

/// The blocks of keys of a task.
template <class T>
struct KeyParts {
  /// The largest number of key blocks of a task.
  static constexpr Index kMostBlocks = 16;

  /// The number of neighbouring key blocks of one task: several if they are short.
  static Index blocks_of_task(const AnyPlan& plan, Index keys) {
    if (plan.key_block_count() == 0) return 1;
    return std::clamp<Index>(key_block_rows(keys) / plan.largest_key_block(), 1, kMostBlocks);
  }

  /// \param keys of the sequence   \param task number of the task among those of a key head
  KeyParts(const AnyPlan& plan, Index keys, Index task) {
    const Index most = blocks_of_task(plan, keys);
    const Index end = (std::min)(plan.key_block_count(), (task + 1) * most);
    Index row = 0;
    for (Index p = task * most; p < end; ++p) {
      KeyPart<T>& part = at[static_cast<std::size_t>(count++)];
      part = {p, plan.key_block(p), plan.key_roles(p), plan.query_blocks(p), row};
      row += part.keys.count;
      if (part.blocks.begin >= part.blocks.end) continue;
      const bool first = blocks.begin >= blocks.end;
      blocks.begin = first ? part.blocks.begin : (std::min)(blocks.begin, part.blocks.begin);
      blocks.end = (std::max)(blocks.end, part.blocks.end);
    }
  }

  std::array<KeyPart<T>, kMostBlocks> at;  ///< the blocks
  Index count = 0;                         ///< their number
  Range blocks = {};                       ///< all query blocks that may see one of them
};

FOVEA_NAMESPACE_END
