// SPDX-License-Identifier: MIT
/// \file
/// BigBird attention (Zaheer et al. 2020, section 2; MATHS.md, section 3): a window of blocks,
/// global blocks, and random blocks, drawn or given.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/block_list.hpp"
#include "fovea/patterns/combine.hpp"
#include "fovea/patterns/global.hpp"
#include "fovea/patterns/random_blocks.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of BigBirdAttention.
struct BigBirdOptions {
  Index block = 64;         ///< positions in a block, at least 1
  Index window_blocks = 1;  ///< visible blocks on either side of the query's own, at least 0
  /// This many blocks, from the first on, are global: their queries see all keys, and all queries
  /// see them.
  Index global_blocks = 2;
  /// This many blocks, up to the last block of keys (the tensor's last rows, whatever the key
  /// lengths), are global as well; 0 if causal.
  Index last_global_blocks = 0;
  /// Random key blocks for each query block, from 0 to RandomBlocks::kMostBlocks.
  Index random_blocks = 3;
  /// Seed of the random blocks, which also depend on the head.
  std::uint64_t seed = 0;
  /// Lists of key blocks for each query block, used in place of drawn ones: head h has
  /// given_blocks[h % size]. Blocks may also be global or in the window. If a list is given,
  /// nothing is drawn, and random_blocks and seed are not read.
  std::vector<BlockRows> given_blocks = {};
  /// If true, row i sees no key after its own position.
  bool causal = false;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

/// BigBird attention: softmax over the key blocks around each query's own block, the global blocks
/// and the random ones; each key counts once. Logits, shapes, errors and calls are as in
/// SoftmaxOperator. N need not be a multiple of the block.
/// Cost: 2 (D + Dv) flops for each visible pair; there are about N block (1 + 2 window_blocks + 2
/// (global_blocks + last_global_blocks) + random_blocks) of them.
class BigBirdAttention : public SoftmaxOperator<BigBirdAttention> {
 public:
  BigBirdOptions options;  ///< checked at every call

  /// Holds the options.
  explicit BigBirdAttention(BigBirdOptions chosen = {}) : options(std::move(chosen)) {}

  /// The operator's name.
  static constexpr const char* name() { return "BigBirdAttention"; }

  /// The keys that each row of a head sees; heads differ in their random blocks.
  AnyPattern pattern(Index head, const SequenceShape& shape) const {
    const auto& o = options;
    const Index key_blocks = this->key_blocks(shape);
    const auto sure = unite(global(key_blocks), window());
    if (o.given_blocks.empty()) return join(sure, random(head, key_blocks));
    const auto list = static_cast<std::size_t>(head) % o.given_blocks.size();
    return unite(
        sure, BlockList(o.block, kFarPosition / o.block, o.given_blocks[list], o.causal, name()));
  }

  /// The period of the heads' patterns: all heads differ if random blocks are drawn.
  Index pattern_period(Index heads) const {
    if (!options.given_blocks.empty()) return static_cast<Index>(options.given_blocks.size());
    return options.random_blocks > 0 ? heads : 1;
  }

  /// \throws std::invalid_argument if the block is below 1, a number of blocks is negative, the
  /// global blocks reach beyond kFarPosition, there are last global blocks under a causal pattern,
  /// or more than RandomBlocks::kMostBlocks random blocks
  void check_options() const {
    check_block_window(name(), window());
    check_global_blocks("global_blocks", options.global_blocks);
    check_global_blocks("last_global_blocks", options.last_global_blocks);
    if (options.causal && options.last_global_blocks > 0) {
      refuse(name(), "last_global_blocks", std::to_string(options.last_global_blocks),
             "0 in a causal pattern: a row must not depend on where the sequence ends");
    }
    check_random_blocks(name(), random(0, 0));
  }

  /// \throws std::invalid_argument if a given list's offsets or columns do not ascend, or a column
  /// is not a key block
  void check_pattern(const SequenceShape& shape) const {
    for (const BlockRows& rows : options.given_blocks) {
      check_block_rows(name(), options.block, key_blocks(shape), rows);
    }
  }

 private:
  void check_global_blocks(const char* option, Index blocks) const {
    const Index most = kFarPosition / options.block;
    if (blocks >= 0 && blocks <= most) return;
    refuse(name(), option, std::to_string(blocks), "0 to " + std::to_string(most));
  }

  Index key_blocks(const SequenceShape& shape) const { return ceil_div(shape.keys, options.block); }

  GlobalTokens global(Index key_blocks) const {
    const auto& o = options;
    const Index last = (std::max<Index>)(0, key_blocks - o.last_global_blocks);
    return GlobalTokens::first_and_last(o.global_blocks * o.block, last * o.block,
                                        o.last_global_blocks > 0 ? key_blocks * o.block : 0,
                                        o.causal, name());
  }

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
            .skip_near = options.window_blocks,
            .skip_last = options.last_global_blocks};
  }
};

FOVEA_NAMESPACE_END
