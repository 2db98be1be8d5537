// SPDX-License-Identifier: MIT
/// \file
/// How many neighbouring residue classes of a plan a task processes, and where it packs their keys.
#pragma once

#include <algorithm>

#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/kernels/softmax/block.hpp"

FOVEA_NAMESPACE_BEGIN

/// The residue classes of a plan whose rows are far apart in memory, several neighbours at a time
/// if each block is a whole class. (In measurements with a stride of 128, 4 at a time took 0.90 to
/// 0.93 of the time of single ones.)
/// \tparam T the type of the arithmetic
template <class T>
class StridedPacking {
 public:
  /// \param shape the shape of the plan's sequence
  StridedPacking(const AnyPlan& plan, const SequenceShape& shape, Index width, Index value_width)
      : step_(plan.row_step()),
        is_far_(is_far(step_, (std::max)(width, value_width) * Index{sizeof(T)})),
        keys_(ceil_div(shape.keys, step_)) {
    const bool are_whole = plan.block_count() == (std::min)(shape.queries, step_);
    if (!is_far_ || !are_whole) return;
    const Index of_class = packed_classes(1, (std::max)(keys_, Index{1}), width, value_width);
    together_ = std::clamp(elements() / of_class, Index{1}, (std::min)(kMost, step_));
  }

  /// The number of blocks per task, at least 1.
  Index together() const { return together_; }

  /// Elements of memory for their keys and values, independent of the sequence length.
  Index elements() const { return is_far_ ? kBytes / Index{sizeof(T)} : 0; }

  /// Where the block of class `own`, counted from the task's first class, reads its keys.
  /// \param first position of the first row of the task's first block
  /// \param block the block, with its keys
  /// \param data elements() elements
  PackedResidues<T> of_block(Index first, Index own, const QueryBlock& block, T* data) const {
    PackedResidues<T> packed;
    if (together_ == 1) return packed;
    packed.count = together_;
    packed.keys = keys_;
    packed.first = floor_mod(first, step_);
    packed.step = step_;
    packed.own = own;
    // After the last class comes the first one again, whose keys are not packed.
    bool is_among = packed.first + own < step_;
    for (Index r = 0; r < block.run_count; ++r) {
      const KeyRun& run = block.runs[r];
      is_among = is_among && run.step == step_ && run.first % step_ == packed.first + own;
    }
    if (is_among && block.most_keys > kBandKeys) packed.data = data;
    return packed;
  }

 private:
  static constexpr Index kBytes = Index{1} << 18;  // at most half of an L2 cache
  static constexpr Index kMost = 8;

  /// Whether rows of this many bytes are far apart, for any step.
  static bool is_far(Index step, Index row_bytes) {
    return step > 1 && row_bytes > 0 && step >= ceil_div(kFarApart, row_bytes);
  }

  Index step_;
  bool is_far_;
  Index keys_;  // of a class
  Index together_ = 1;
};

FOVEA_NAMESPACE_END
