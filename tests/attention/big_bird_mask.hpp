// SPDX-License-Identifier: MIT
/// \file
/// What heads of BigBird see, with random blocks that are drawn.
#pragma once

#include <cstdlib>

#include "attention/sparse_masks.hpp"
#include "fovea/attention/big_bird.hpp"
#include "support/oracle/reference_mask.hpp"

namespace fovea_test {

inline ReferenceMask big_bird_mask(const fovea::BigBirdOptions& o) {
  return [o](const Pair& p) {
    const Index i = p.position(o.alignment);
    const bool ends = o.alignment == fovea::CausalAlignment::key_length && !p.first;
    const Index key_blocks = ((ends ? p.length : p.keys) + o.block - 1) / o.block;
    const fovea::RandomBlocks random{
        o.block,         o.random_blocks, key_blocks,          o.seed, p.h, o.causal,
        o.global_blocks, o.window_blocks, o.last_global_blocks};
    const Index own = block_of(i, o.block);
    const Index block = block_of(p.j, o.block);
    const auto is_global = [&](Index x) {
      return (0 <= x && x < o.global_blocks) ||
             (key_blocks - o.last_global_blocks <= x && x < key_blocks);
    };
    return (!o.causal || p.j <= i) && (std::abs(own - block) <= o.window_blocks || is_global(own) ||
                                       is_global(block) || random.allows(i, p.j));
  };
}

}  // namespace fovea_test
