// SPDX-License-Identifier: MIT
/// \file
/// How many neighbouring residue classes of a plan a task takes, and where it packs their keys.
#pragma once

#include <algorithm>

#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/kernels/softmax/block.hpp"

FOVEA_NAMESPACE_BEGIN

/// The residue classes of a plan whose blocks are whole ones, a number of neighbours at a time. (In
/// measurements with a stride of 128, 4 to 8 of them took 0.83 to 0.86 of the time of one after the
/// other.)
/// \tparam T the type of the arithmetic
template <class T>
class ResidueClasses {
 public:
  /// \param keys the number of keys of the sequence
  ResidueClasses(const AnyPlan& plan, Index keys, Index width, Index value_width)
      : step_(plan.class_step()), width_(width), value_width_(value_width) {
    const Index row_bytes = (std::max)(width, value_width) * Index{sizeof(T)};
    if (step_ == 0 || step_ * row_bytes < kFarApart) return;
    keys_ = (keys + step_ - 1) / step_;
    const Index elements = packed_classes(1, keys_, width, value_width);
    const Index fitting = kBytes / Index{sizeof(T)} / (std::max)(elements, Index{1});
    together_ = std::clamp(fitting, Index{1}, (std::min)(kMost, step_));
  }

  /// The number of blocks that a task takes, at least 1.
  Index together() const { return together_; }

  /// Elements of memory for their keys and values.
  Index elements() const {
    return together_ == 1 ? 0 : packed_classes(together_, keys_, width_, value_width_);
  }

  /// Where the block of the rows of class `own`, counted from the task's first one, reads its keys.
  /// \param first position of the first row of the task's first block
  /// \param runs the keys of the block
  /// \param data elements() elements
  PackedClasses<T> of_block(Index first, Index own, const QueryBlock& block, T* data) const {
    PackedClasses<T> packed;
    if (together_ == 1) return packed;
    packed.count = together_;
    packed.keys = keys_;
    packed.first = floor_mod(first, step_);
    packed.step = step_;
    packed.own = own;
    // Behind the last class the first one follows, whose keys are not among the packed ones.
    bool is_among = packed.first + own < step_;
    for (Index r = 0; r < block.run_count; ++r) {
      const KeyRun& run = block.runs[r];
      is_among = is_among && run.step == step_ && run.first % step_ == packed.first + own;
    }
    if (is_among && block.most_keys > kBandKeys) packed.data = data;
    return packed;
  }

 private:
  static constexpr Index kBytes = Index{1} << 18;  // half of a second-level cache, or less
  static constexpr Index kMost = 8;

  Index step_;
  Index width_;
  Index value_width_;
  Index keys_ = 0;
  Index together_ = 1;
};

FOVEA_NAMESPACE_END
