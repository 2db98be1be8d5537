// SPDX-License-Identifier: MIT
/// \file
/// BigBird attention (Zaheer et al. 2020, section 2; MATHS.md, section 3): a window of blocks,
/// global blocks and random blocks.
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
  Index window_blocks = 1;  ///< visible blocks on either side of the query's own, at least 0
  /// This many blocks, from the first on, are global: their queries see all keys, and all queries
  /// see them.
  Index global_blocks = 2;  ///< the first so many: they see all and all see them
  /// Random blocks of keys for each block of queries, from 0 to RandomBlocks::kMostBlocks.
  Index random_blocks = 3;  ///< of keys for each block of queries, 0 to RandomBlocks::kMostBlocks
  /// Seed of the random blocks, which also depend on the head.
  std::uint64_t seed = 0;  ///< of the random blocks, which also depend on the head
  /// If true, row i sees no key after its own position.
  bool causal = false;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0 if Nq != Nk; by default the queries end where the keys end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

/// BigBird attention: softmax over the blocks of keys around each query's own block, the global
/// blocks and the random ones; each key counts once. The logits, the shapes, the errors and the
/// calls are those of SoftmaxOperator. N need not be a multiple of the block.
/// Cost: 2 (D + Dv) flops for each visible pair; there are about N block (1 + 2 window_blocks + 2
/// global_blocks + random_blocks) of them.
class BigBirdAttention : public SoftmaxOperator<BigBirdAttention> {
 public:
  BigBirdOptions options;  ///< checked at every call

  /// Holds these options. They are checked when the operator is called.
  explicit BigBirdAttention(const BigBirdOptions& chosen = {}) : options(chosen) {}

  /// The name that stands in error messages, tables and benchmarks.
  static constexpr const char* name() { return "BigBirdAttention"; }

  /// The keys that each row of a head sees; heads differ in their random blocks.
  AnyPattern pattern(Index head, const SequenceShape& shape) const {
    const auto& o = options;
    const Index key_blocks = -floor_div(-shape.keys, o.block);
    return join(unite(GlobalTokens::first(o.global_blocks * o.block, o.causal), window()),
                random(head, key_blocks));
  }

  /// The patterns repeat after this many heads: all heads differ if there are random blocks.
  Index pattern_period(Index heads) const { return options.random_blocks > 0 ? heads : 1; }

  /// \throws std::invalid_argument if the block is below 1, a number of blocks is negative, the
  /// global blocks reach beyond kFarPosition, or there are more than RandomBlocks::kMostBlocks
  /// random blocks
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
