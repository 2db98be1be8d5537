// SPDX-License-Identifier: MIT
/// \file
/// Block-sparse attention: each block of queries sees the blocks of keys that are listed for it.
#pragma once

#include <string>
#include <vector>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/block_list.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of BlockSparseAttention.
struct BlockSparseOptions {
  Index block = 64;  ///< positions of a block, at least 1
  /// Of all heads, or head h has layouts[h % size].
  std::vector<BlockRows> layouts = {};
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

/// Softmax over the listed blocks; queries behind the last listed row of blocks see nothing. See
/// SoftmaxOperator for the logits, shapes, errors and the calls. N need not be a multiple of the
/// block.
/// Cost: 2 (D + Dv) flops per visible pair.
class BlockSparseAttention : public SoftmaxOperator<BlockSparseAttention> {
 public:
  BlockSparseOptions options;

  explicit BlockSparseAttention(BlockSparseOptions chosen) : options(std::move(chosen)) {}

  static constexpr const char* name() { return "BlockSparseAttention"; }
  static constexpr bool kPatternKnowsShape = false;

  AnyPattern pattern(Index head, const SequenceShape& /*shape*/) const {
    const auto size = static_cast<Index>(options.layouts.size());
    return BlockList(options.block, kFarPosition / options.block,
                     options.layouts[static_cast<std::size_t>(head % size)], options.causal,
                     name());
  }

  Index pattern_period(Index /*heads*/) const { return static_cast<Index>(options.layouts.size()); }

  void check_options() const {
    if (options.layouts.empty()) refuse(name(), "the number of layouts", "0", "at least 1");
    if (options.block < 1) refuse(name(), "block", std::to_string(options.block), "at least 1");
  }

  void check_pattern(const SequenceShape& shape) const {
    const Index key_blocks = -floor_div(-shape.keys, options.block);
    for (const BlockRows& rows : options.layouts) {
      check_block_rows(name(), options.block, key_blocks, rows);
    }
  }
};

FOVEA_NAMESPACE_END
