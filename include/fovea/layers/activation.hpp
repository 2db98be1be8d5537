// SPDX-License-Identifier: MIT
/// \file
/// Activations as the layers see them: views [B, 1, L, C] whose rows are dense, the buffers that
/// keep them between forward and backward, and how rows are cut into tasks.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <concepts>
#include <span>

#include "fovea/core/executor.hpp"
#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

/// Weights and blocks of activations: rows are tokens or inputs, columns channels.
template <class T>
using RowMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Owns a dense tensor of four dimensions; its memory stays when it is resized to no more elements,
/// so that calls whose shapes repeat allocate nothing.
template <class T>
class Buffer {
 public:
  /// The elements are what they were, or anything. \throws std::bad_alloc
  View<T> resize(const Shape& shape) {
    T element{};
    const Index size = View<T>(&element, shape).size();  // checks the product of the extents
    if (size * static_cast<Index>(sizeof(T)) > bytes_.size_bytes()) {
      bytes_ = Workspace();  // the old memory goes before the new one is had
      bytes_ = Workspace(size, static_cast<Index>(sizeof(T)));
    }
    shape_ = shape;
    return view();
  }

  /// The same for activations. \return [batch, 1, rows, width]
  View<T> resize(Index batch, Index rows, Index width) { return resize({batch, 1, rows, width}); }

  View<T> view() { return {bytes_.data<T>(), shape_}; }
  View<const T> view() const { return {bytes_.data<T>(), shape_}; }

 private:
  Workspace bytes_;
  Shape shape_{};
};

/// A sequence, and what belongs to its tokens; layers that look at single tokens read x alone.
template <class T>
struct Tokens {
  View<const T> x = {};  ///< [B, 1, L, C]
  /// [B]: batch b has the tokens [0, key_lengths[b]); empty: all.
  std::span<const Index> key_lengths = {};
  /// [B, H, L, K]: the keys of each row, for IndexedAttention alone.
  View<const Index> indices = {};
  /// [B, H, L, M]: the dominant queries of each key, for FsatAttention alone.
  View<const T> dominant = {};

  Tokens() = default;
  template <class X>
  requires std::convertible_to<const X&, View<const T>>
  // NOLINTNEXTLINE(google-explicit-constructor): a tensor alone is a sequence without lengths
  Tokens(const X& tensor, std::span<const Index> lengths = {}) : x(tensor), key_lengths(lengths) {}

  /// The tokens of batch b.
  Index length(Index b) const {
    return key_lengths.empty() ? x.rows() : key_lengths[static_cast<std::size_t>(b)];
  }

  /// Other channels of the same tokens. \param channels [B, 1, L, any]
  Tokens with(const View<const T>& channels) const {
    Tokens other = *this;
    other.x = channels;
    return other;
  }
};

/// The heads that lie side by side in a matrix of activations: [B, 1, L, W] as [B, H, L, D], from
/// column `first` on.
template <class T>
[[nodiscard]] View<T> as_heads(const View<T>& x, Index first, Index heads, Index head_width) {
  const Shape shape = {x.batch(), heads, x.rows(), head_width};
  return {x.size() == 0 ? x.data() : x.data() + first,
          shape,
          {x.strides()[0], head_width, x.strides()[2], 1}};
}

/// Whether a backward pass writes the gradient of its input or adds to it.
enum class Into { write, add };

namespace detail {

template <class T>
using RowsMap = Eigen::Map<RowMatrix<std::remove_const_t<T>>, Eigen::Unaligned,
                           Eigen::OuterStride<Eigen::Dynamic>>;
template <class T>
using ConstRowsMap = Eigen::Map<const RowMatrix<std::remove_const_t<T>>, Eigen::Unaligned,
                                Eigen::OuterStride<Eigen::Dynamic>>;

/// Rows [first, first + count) of batch b as a matrix [count, C]. \pre unit stride of columns
template <class T>
auto rows_of(const View<T>& x, Index b, Index first, Index count) {
  using Map = std::conditional_t<std::is_const_v<T>, ConstRowsMap<T>, RowsMap<T>>;
  T* const at = x.size() == 0 ? x.data() : &x(b, 0, first, 0);
  return Map(at, count, x.width(), Eigen::OuterStride<Eigen::Dynamic>(x.strides()[2]));
}

/// Batch b as a matrix [L, C].
template <class T>
auto rows_of(const View<T>& x, Index b) {
  return rows_of(x, b, 0, x.rows());
}

/// Rows in a task: enough that packing a weight matrix is little beside the product.
inline constexpr Index kRowsPerTask = 128;
/// Columns in a task that goes through all rows; a multiple of a cache line.
inline constexpr Index kColumnsPerTask = 64;

constexpr Index blocks(Index extent, Index block) { return (extent + block - 1) / block; }

/// Calls f(b, first, count) for blocks of rows, cut by the shape alone, over the executor.
template <class E, class F>
void for_each_row_block(E&& executor, Index batch, Index rows, F&& f) {
  const Index per_batch = blocks(rows, kRowsPerTask);
  for_each_task(executor, batch * per_batch, [&](Index task, Index /*worker*/) {
    const Index first = task % per_batch * kRowsPerTask;
    f(task / per_batch, first, (std::min)(kRowsPerTask, rows - first));
  });
}

/// Calls f(first, count) for blocks of columns, cut by the shape alone, over the executor.
template <class E, class F>
void for_each_column_block(E&& executor, Index columns, Index block, F&& f) {
  for_each_task(executor, blocks(columns, block), [&](Index task, Index /*worker*/) {
    f(task * block, (std::min)(block, columns - task * block));
  });
}

}  // namespace detail

FOVEA_NAMESPACE_END
