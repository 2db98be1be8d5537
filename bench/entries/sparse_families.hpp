// SPDX-License-Identifier: MIT
/// \file
/// Lengths and heads of more than one sparse operator.
#pragma once

#include <utility>
#include <vector>

#include "bench/entries/operator_entry.hpp"

namespace bench {

/// Two heads, one of each pattern if heads differ: the rows for ratios.
inline Family two_heads(std::vector<Index> lengths) {
  return {.lengths = std::move(lengths), .heads = 2, .key_heads = 2};
}

inline std::vector<Family> sparse_families() {
  return {{.lengths = {4096, 16384}},
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}},
          two_heads({4096, 65536})};
}

inline std::vector<Family> sparse_backward_families() {
  return {{.lengths = {4096, 16384}},
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}}};
}

}  // namespace bench
