// SPDX-License-Identifier: MIT
/// \file
/// The tasks of the hidden-state cross: blocks of channels of a sequence.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "fovea/core/index_span.hpp"
#include "fovea/core/view.hpp"
#include "fovea/spectral/cross_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of channels in a task. A row of them is a cache line. Rows of two lines are gathered
/// faster on processors that fetch lines in pairs, but make half as many tasks with twice the
/// scratch: on AMD EPYC (512 KB of second-level cache, C = 64, 4096 rows of float) they took 1.2
/// times as long on one thread, and as long on two.
template <class T>
inline constexpr Index kCrossChannels = 64 / Index{sizeof(T)};

/// The stride of channels' sequences in scratch, in elements of T: one cache line more than the
/// sequence, so that a row of all channels does not map to a single cache set.
constexpr Index cross_stride(const TransformSize& size) {
  return padded_size(size.size(), kRootBlock) + kRootBlock;
}

/// The tasks of one call, and the plans of its sequences.
template <class T>
class CrossTasks {
 public:
  /// \param shape [B, 1, L, C] of the tensors
  /// \param key_lengths [B] rows of each sequence, or empty
  /// \param planning how FFTW chooses plans
  /// \param is_backward whether the plans are for the backward pass
  /// \throws as FftPlan
  CrossTasks(const Shape& shape, IndexSpan key_lengths, FftPlanning planning, bool is_backward)
      : width_(shape[3]), blocks_((width_ + kCrossChannels<T> - 1) / kCrossChannels<T>) {
    for (Index b = 0; b < shape[0]; ++b) {
      const Index n = key_lengths.value_or(b, shape[2]);
      const auto same = std::find_if(plans_.begin(), plans_.end(),
                                     [&](const auto& plan) { return plan.length == n; });
      of_batch_.push_back(static_cast<std::size_t>(same - plans_.begin()));
      if (same != plans_.end()) continue;
      // Sequences of less than 2 rows have nothing to transform.
      if (n < 2 || blocks_ == 0) plans_.push_back({n, {}});
      if (n >= 2 && blocks_ > 0) plans_.push_back({n, CrossPlan<T>(n, planning, is_backward)});
    }
  }

  /// The number of tasks.
  Index count() const { return static_cast<Index>(of_batch_.size()) * blocks_; }
  /// The sequence that a task belongs to.
  Index batch(Index task) const { return task / blocks_; }
  /// The first channel of a task.
  Index first_channel(Index task) const { return task % blocks_ * kCrossChannels<T>; }
  /// The number of channels of a task; the last block of a sequence may have fewer.
  Index channels(Index task) const {
    return (std::min)(kCrossChannels<T>, width_ - first_channel(task));
  }

  /// The plan of the sequence that a task belongs to; null if it has less than two rows.
  const CrossPlan<T>* plan(Index task) const {
    const auto& plan = plans_[of_batch_[static_cast<std::size_t>(batch(task))]].plan;
    return plan.has_value() ? &*plan : nullptr;
  }

 private:
  struct OfLength {
    Index length;
    std::optional<CrossPlan<T>> plan;
  };

  Index width_;
  Index blocks_;
  std::vector<OfLength> plans_;
  std::vector<std::size_t> of_batch_;
};

/// The arguments that gather channels [first, first + channels) of one sequence of \p x [B, 1, L,
/// C]. Rows from \p count on are read as 0.
template <class T>
GatherChannelsArgs<T> gather_args(const View<const T>& x, Index batch, Index first, Index channels,
                                  Index count, T* sequences, const TransformSize& size) {
  return {&x(batch, 0, 0, first),
          x.strides()[2],
          x.strides()[3],
          count,
          channels,
          sequences,
          cross_stride(size),
          padded_size(size.size(), kRootBlock)};
}

/// The arguments that scatter these channels to \p x [B, 1, L, C]. Rows from \p count on become 0.
template <class T>
ScatterChannelsArgs<T> scatter_args(const T* sequences, const TransformSize& size, const View<T>& x,
                                    Index batch, Index first, Index channels, Index count) {
  return {sequences,
          cross_stride(size),
          &x(batch, 0, 0, first),
          x.strides()[2],
          x.strides()[3],
          count,
          x.rows(),
          channels};
}

FOVEA_NAMESPACE_END
