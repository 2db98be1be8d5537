// SPDX-License-Identifier: MIT
/// \file
/// Block-sparse attention: each query block sees the key blocks listed for it (MATHS.md, section
/// 3).
#pragma once

#include <string>
#include <vector>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/block_list.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of BlockSparseAttention.
struct BlockSparseOptions {
  Index block = 64;  ///< positions in a block, at least 1
  /// At least one list of blocks: head h has layouts[h % size], so a single one is for all heads.
  std::vector<BlockRows> layouts = {};
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

/// Block-sparse attention: softmax over the keys of the listed blocks. Queries after the last
/// listed row of blocks see nothing. Logits, shapes, errors and calls are as in SoftmaxOperator. N
/// need not be a multiple of the block.
/// Cost: 2 (D + Dv) flops for each visible pair.
class BlockSparseAttention : public SoftmaxOperator<BlockSparseAttention> {
 public:
  BlockSparseOptions options;  ///< checked at every call

  /// Holds the options.
  explicit BlockSparseAttention(BlockSparseOptions chosen) : options(std::move(chosen)) {}

  /// The operator's name.
  static constexpr const char* name() { return "BlockSparseAttention"; }
  /// A head's pattern is the same for all shapes.
  static constexpr bool kPatternKnowsShape = false;

  /// The keys that each row of a head sees: the blocks in its layout.
  BlockList pattern(Index head, const SequenceShape& /*shape*/) const {
    const auto size = static_cast<Index>(options.layouts.size());
    return BlockList(options.block, kFarPosition / options.block,
                     options.layouts[static_cast<std::size_t>(head % size)], options.causal,
                     name());
  }

  /// The period of the heads' patterns.
  Index pattern_period(Index /*heads*/) const { return static_cast<Index>(options.layouts.size()); }

  /// \throws std::invalid_argument if there is no layout, or the block is below 1
  void check_options() const {
    if (options.layouts.empty()) refuse(name(), "the number of layouts", "0", "at least 1");
    if (options.block < 1) refuse(name(), "block", std::to_string(options.block), "at least 1");
  }

  /// \throws std::invalid_argument if a layout's offsets or columns do not ascend, or a column is
  /// not a key block
  void check_pattern(const SequenceShape& shape) const {
    const Index key_blocks = ceil_div(shape.keys, options.block);
    for (const BlockRows& rows : options.layouts) {
      check_block_rows(name(), options.block, key_blocks, rows);
    }
  }
};

FOVEA_NAMESPACE_END
