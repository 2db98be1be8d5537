// SPDX-License-Identifier: MIT
/// \file
/// Lengths and heads that several operators have.
#pragma once

#include <utility>
#include <vector>

#include "bench/entries/operator_entry.hpp"

namespace bench {

inline Family few_heads(Index heads, std::vector<Index> lengths, int threads = 1) {
  return {.threads = threads, .lengths = std::move(lengths), .heads = heads, .key_heads = heads};
}

/// One of each pattern, if heads differ: the rows for ratios of sparse operators.
inline Family two_heads(std::vector<Index> lengths) { return few_heads(2, std::move(lengths)); }

/// Of further choices of an operator's options.
inline std::vector<Family> few_families() {
  return {{.lengths = {4096, 16384}}, few_heads(2, {4096, 65536})};
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

/// Of the operators with a far field.
inline std::vector<Family> far_families() {
  return {{.lengths = {512, 4096, 16384}},
          few_heads(2, {4096, 65536}),
          few_heads(1, {16384}),
          {.width = 128, .lengths = {4096}},
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}}};
}

/// One head, whose tokens several threads can share if the operator is not causal.
inline Family shared_head() { return few_heads(1, {16384}, 2); }

inline std::vector<Family> far_backward_families() {
  return {{.lengths = {4096, 16384}},
          few_heads(2, {65536}),
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}}};
}

inline std::vector<Family> far_decode_families() {
  return {{.lengths = {4096, 32768}}, few_heads(1, {32768}), {.threads = 2, .lengths = {32768}}};
}

}  // namespace bench
