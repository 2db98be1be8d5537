// SPDX-License-Identifier: MIT
/// \file
/// BigBird attention (Zaheer et al. 2020, section 2): blocks of a window, global blocks, random
/// blocks.
#pragma once

#include <cstdint>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/combine.hpp"
#include "fovea/patterns/global.hpp"
#include "fovea/patterns/random_blocks.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of BigBirdAttention.
struct BigBirdOptions {
  Index block = 64;         ///< positions of a block, at least 1
  Index window_blocks = 1;  ///< on either side of the query's own block
  Index global_blocks = 2;  ///< the first so many: they see all and all see them
  Index random_blocks = 3;  ///< of keys for each block of queries, 0 to RandomBlocks::kMostBlocks
  std::uint64_t seed = 0;   ///< of the random blocks, which also depend on the head
  /// Row i sees keys up to its own position.
  bool causal = false;
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Of the weights, after the softmax.
  Dropout dropout = {};
};

/// Softmax over the blocks of keys around each query's own, the global blocks and random ones, each
/// key once; see SoftmaxOperator for the logits, shapes, errors and the calls. N need not be a
/// multiple of the block.
/// Cost: 2 (D + Dv) flops per visible pair: about N block (1 + 2 window + 2 global + random).
class BigBirdAttention : public SoftmaxOperator<BigBirdAttention> {
 public:
  BigBirdOptions options;

  explicit BigBirdAttention(const BigBirdOptions& chosen = {}) : options(chosen) {}

  static constexpr const char* name() { return "BigBirdAttention"; }

  AnyPattern pattern(Index head, const SequenceShape& shape) const {
    const auto& o = options;
    const Index key_blocks = -floor_div(-shape.keys, o.block);
    return join(unite(GlobalTokens::first(o.global_blocks * o.block, o.causal), window()),
                random(head, key_blocks));
  }

  Index pattern_period(Index heads) const { return options.random_blocks > 0 ? heads : 1; }

  void check_options() const {
    check_block_window(name(), window());
    const Index most = kFarPosition / options.block;
    if (options.global_blocks < 0 || options.global_blocks > most) {
      refuse(name(), "global_blocks", std::to_string(options.global_blocks),
             "0 to " + std::to_string(most));
    }
    check_random_blocks(name(), random(0, 0));
  }

 private:
  BlockWindow window() const {
    return {options.block, options.window_blocks, options.window_blocks, options.causal};
  }

  RandomBlocks random(Index head, Index key_blocks) const {
    return {.block = options.block,
            .count = options.random_blocks,
            .key_blocks = key_blocks,
            .seed = options.seed,
            .head = head,
            .causal = options.causal,
            .skip_first = options.global_blocks,
            .skip_near = options.window_blocks};
  }
};

FOVEA_NAMESPACE_END
