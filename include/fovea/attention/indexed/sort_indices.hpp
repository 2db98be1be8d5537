// SPDX-License-Identifier: MIT
/// \file
/// Sorts lists of keys into the form that IndexedAttention reads.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/core/tensor_check.hpp"

FOVEA_NAMESPACE_BEGIN

/// Sorts the rows of lists [B, H, N, K] in place, into the form that IndexedAttention reads:
/// ascending, with -1 after the last key. In the input -1 may be anywhere. Duplicate keys are kept,
/// and refused by the operator. Cost: O(B H N K log K) comparisons.
/// \throws std::invalid_argument if elements share memory; std::bad_alloc
inline void sort_indices(const View<Index>& indices) {
  detail::check_distinct("sort_indices", "indices", indices);
  const auto before = [](Index a, Index b) {  // -1 comes last
    return static_cast<std::size_t>(a) < static_cast<std::size_t>(b);
  };
  std::vector<Index> row(static_cast<std::size_t>(indices.width()));
  for (Index b = 0; b < indices.batch(); ++b) {
    for (Index h = 0; h < indices.heads(); ++h) {
      for (Index n = 0; n < indices.rows(); ++n) {
        for (std::size_t i = 0; i < row.size(); ++i) row[i] = indices(b, h, n, Index(i));
        std::sort(row.begin(), row.end(), before);
        for (std::size_t i = 0; i < row.size(); ++i) indices(b, h, n, Index(i)) = row[i];
      }
    }
  }
}

FOVEA_NAMESPACE_END
