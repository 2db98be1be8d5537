// SPDX-License-Identifier: MIT
/// \file
/// The operators of softmax attention over patterns that are tested on ranks, each with another
/// pattern or option.
#pragma once

#include <string>

#include "fovea/attention.hpp"

namespace fovea_test {

/// A function of logits that a user writes, which knows positions.
struct NearerIsMore {
  template <class T>
  T value(T z, fovea::ScorePair pair) const noexcept {
    return z - static_cast<T>(0.001) * static_cast<T>(pair.query - pair.key);
  }
  template <class T>
  T derivative(T /*z*/, fovea::ScorePair /*pair*/) const noexcept {
    return 1;
  }
};

/// Each block of queries sees its own block of keys, and the first one.
inline fovea::BlockRows own_and_first_blocks(fovea::Index rows, fovea::Index block) {
  fovea::BlockRows blocks;
  blocks.offsets.push_back(0);
  for (fovea::Index n = 0; n * block < rows; ++n) {
    blocks.columns.push_back(0);
    if (n > 0) blocks.columns.push_back(n);
    blocks.offsets.push_back(static_cast<fovea::Index>(blocks.columns.size()));
  }
  return blocks;
}

/// Calls f(name, op) for each, for a sequence of that many rows.
template <class F>
void for_each_softmax_operator(fovea::Index rows, const F& f) {
  using fovea::HeadAssignment;
  const fovea::FullAttention causal{{.causal = true}};
  f("full", fovea::FullAttention{});
  f("causal", causal);
  f("cap and dropout",
    fovea::FullAttention{
        {.causal = true, .soft_cap = 2.5, .dropout = {.probability = 0.3, .seed = 99}}});
  f("modified", fovea::ModifiedAttention(causal, NearerIsMore{}));
  f("narrow window", fovea::LocalAttention{{.left = 4, .right = 4}});
  f("window", fovea::LocalAttention{{.left = 70, .right = 11}});
  f("strided", fovea::StridedAttention{{.stride = 16}});
  f("strided, merged", fovea::StridedAttention{{.stride = 16, .heads = HeadAssignment::merged}});
  f("fixed", fovea::FixedAttention{{.stride = 16, .summary = 2}});
  f("fixed, merged", fovea::FixedAttention{{.stride = 16, .heads = HeadAssignment::merged}});
  f("blocks",
    fovea::BlockSparseAttention({.block = 16, .layouts = {own_and_first_blocks(rows, 16)}}));
  f("BigBird", fovea::BigBirdAttention{{.block = 16, .seed = 5}});
  f("patterns of heads",
    fovea::SparseAttention({.patterns = {fovea::AnyPattern(fovea::Window{20, 3}),
                                         fovea::AnyPattern(fovea::strided_merged(8))}}));
}

}  // namespace fovea_test
