// SPDX-License-Identifier: MIT
/// \file
/// Activations as the layers see them: views [B, 1, L, C] whose rows are dense, buffers that keep
/// them between forward and backward, and the cutting of rows into tasks.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <concepts>
#include <optional>

#include "fovea/core/executor_ref.hpp"
#include "fovea/core/members.hpp"
#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/layers/training_step.hpp"

FOVEA_NAMESPACE_BEGIN

/// A matrix of weights or activations. Its rows are tokens or inputs, and its columns are channels.
template <class T>
using RowMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Owns a dense tensor of four dimensions. It keeps its memory when it is resized to no more
/// elements, so that calls whose shapes repeat allocate nothing.
template <class T>
class Buffer {
 public:
  /// Gives the tensor this shape. Elements may keep their values or have any others.
  /// \throws std::bad_alloc if there is no memory for a larger tensor
  View<T> resize(const Shape& shape) {
    T element{};
    const Index size = View<T>(&element, shape).size();  // this checks the product of the extents
    if (size * static_cast<Index>(sizeof(T)) > bytes_.size_bytes()) {
      bytes_ = Workspace();  // frees the old memory before the new one is taken
      bytes_ = Workspace(size, static_cast<Index>(sizeof(T)));
    }
    shape_ = shape;
    return view();
  }

  /// Gives the tensor the shape [batch, 1, rows, width] of activations. \throws as above
  View<T> resize(Index batch, Index rows, Index width) { return resize({batch, 1, rows, width}); }

  /// The tensor, as it was last resized.
  View<T> view() { return {bytes_.data<T>(), shape_}; }
  /// The tensor, as it was last resized, which is only read.
  View<const T> view() const { return {bytes_.data<T>(), shape_}; }

 private:
  Workspace bytes_;
  Shape shape_{};
};

/// A sequence, and what belongs to its tokens. Layers that look at each token alone read only x.
/// What the operator of an attention layer cannot take is refused.
template <class T>
struct Tokens {
  ViewMember<const T> x = {};  ///< [B, 1, L, C] the channels of the tokens
  /// [B] how many tokens each sequence has, from the first one on; if empty, all have L.
  IndexSpan key_lengths = {};
  /// [B, H, L, K] the keys that each row sees, for IndexedAttention only.
  ViewMember<const Index> indices = {};
  /// [B, H, L, M] the dominant queries of each key, for FsatAttention only.
  ViewMember<const T> dominant = {};
  /// [S + 1], ascending from 0 to L, with B = 1: sequence s has the rows [cu_seqlens[s],
  /// cu_seqlens[s + 1]). If empty, the sequences are not packed.
  IndexSpan cu_seqlens = {};
  /// [B, H, L, L], each of which may be 1 instead: added to the logits of softmax attention.
  ViewMember<const T> bias = {};
  /// [B, H, L, L], each of which may be 1 instead, for softmax attention: false hides the pair.
  ViewMember<const bool> mask = {};
  /// The shape of bias: backward passes add the gradient of bias to it, if it is given.
  ViewMember<T> d_bias = {};
  /// The step of training. Exactly if there is one, layers drop what they are made to drop; without
  /// it the tokens are evaluated. A backward pass takes that of its forward pass.
  std::optional<TrainingStep> training = {};

  Tokens() = default;
  /// A sequence of these channels, with lengths or without.
  template <class X>
  requires std::convertible_to<const X&, View<const T>>
  // NOLINTNEXTLINE(google-explicit-constructor): a tensor alone is a sequence without lengths
  Tokens(const X& tensor, IndexSpan lengths = {}) : x(tensor), key_lengths(lengths) {}

  /// How many tokens sequence b has.
  Index length(Index b) const { return length(b, x.rows()); }
  /// The same of a sequence of so many rows, of which x may be a part.
  Index length(Index b, Index rows) const {
    return key_lengths.empty() ? rows : key_lengths[static_cast<std::size_t>(b)];
  }

  /// The same tokens with other channels. \param channels [B, 1, L, any]
  Tokens with(const View<const T>& channels) const {
    Tokens other = *this;
    other.x = channels;
    return other;
  }

  /// The same tokens for a layer with another number. \param after how many numbers later it comes
  Tokens in_layer(std::size_t after) const {
    Tokens other = *this;
    if (other.training) other.training->layer += static_cast<std::uint32_t>(after);
    return other;
  }
};

namespace detail {

/// What as_heads refuses.
template <class T>
void check_heads(const View<T>& x, Index first, Index heads, Index head_width) {
  constexpr const char* name = "as_heads";
  if (x.heads() != 1) refuse_extent(name, "x", x.shape(), 1, "1: heads are columns of x");
  if (x.width() > 1 && x.strides()[3] != 1) {
    refuse(name, "stride of width of x", std::to_string(x.strides()[3]),
           "1: the channels of a head lie side by side");
  }
  Index columns = 0;
  const bool are_sizes = first >= 0 && heads >= 0 && head_width >= 0;
  if (are_sizes && multiply(heads, head_width, columns) && columns <= x.width() - first) return;
  refuse(name, "the columns of heads",
         std::to_string(heads) + " heads of " + std::to_string(head_width) + " from column " +
             std::to_string(first) + " on",
         "columns of x, whose width is " + std::to_string(x.width()));
}

}  // namespace detail

/// Views the heads that lie side by side in a matrix of activations: columns of [B, 1, L, W], from
/// column `first` on, as [B, heads, L, head_width]. Batch and rows may have any strides.
/// \throws std::invalid_argument if x has several heads or no unit stride of width, or if those
/// columns are not in x
template <class T>
[[nodiscard]] View<T> as_heads(const View<T>& x, Index first, Index heads, Index head_width) {
  detail::check_heads(x, first, heads, head_width);
  const Shape shape = {x.batch(), heads, x.rows(), head_width};
  return {x.size() == 0 ? x.data() : x.data() + first,
          shape,
          {x.strides()[0], head_width, x.strides()[2], 1}};
}

/// What a backward pass does with the gradient of its input.
enum class Into {
  write,  ///< the gradient is overwritten
  add     ///< the gradient is added to what is there
};

namespace detail {

/// Rows of activations as a matrix of Eigen.
template <class T>
using RowsMap = Eigen::Map<RowMatrix<std::remove_const_t<T>>, Eigen::Unaligned,
                           Eigen::OuterStride<Eigen::Dynamic>>;
/// Rows of activations as a matrix of Eigen that is only read.
template <class T>
using ConstRowsMap = Eigen::Map<const RowMatrix<std::remove_const_t<T>>, Eigen::Unaligned,
                                Eigen::OuterStride<Eigen::Dynamic>>;

/// The first element of row n of sequence b; that of all data where there is none.
template <class T>
T* row_at(const View<T>& x, Index b, Index n) {
  return x.size() == 0 ? x.data() : &x(b, 0, n, 0);
}

/// Rows [first, first + count) of sequence b as a matrix [count, C]. \pre columns have unit stride
template <class T>
auto rows_of(const View<T>& x, Index b, Index first, Index count) {
  using Map = std::conditional_t<std::is_const_v<T>, ConstRowsMap<T>, RowsMap<T>>;
  return Map(row_at(x, b, first), count, x.width(),
             Eigen::OuterStride<Eigen::Dynamic>(x.strides()[2]));
}

/// Sequence b as a matrix [L, C]. \pre columns have unit stride
template <class T>
auto rows_of(const View<T>& x, Index b) {
  return rows_of(x, b, 0, x.rows());
}

/// The rows in a task: of a product, whole register blocks at every level, and so many that packing
/// a weight matrix takes little time beside the product.
inline constexpr Index kRowsPerTask = 192;
/// The columns in a task that goes through all rows. They fill whole cache lines.
inline constexpr Index kColumnsPerTask = 64;

/// The number of blocks that cover an extent.
constexpr Index blocks(Index extent, Index block) { return (extent + block - 1) / block; }

/// Calls f(b, first, count) for each block of rows, over the executor, or on the calling thread if
/// that is sooner done. The blocks depend on the shape alone.
/// \param products multiply-adds of a row, or as many as take its time
template <class F>
void for_each_row_block(const ExecutorRef& executor, Index batch, Index rows, double products,
                        F&& f) {
  const Index per_batch = blocks(rows, kRowsPerTask);
  const auto threads = for_work(
      executor, [&] { return products * static_cast<double>(batch) * static_cast<double>(rows); });
  for_each_task(threads, batch * per_batch, [&](Index task, Index /*worker*/) {
    const Index first = task % per_batch * kRowsPerTask;
    f(task / per_batch, first, (std::min)(kRowsPerTask, rows - first));
  });
}

/// Calls f(first, count) for each block of columns, over the executor, or on the calling thread if
/// that is sooner done. The blocks depend on the shape alone.
/// \param products multiply-adds of a column, or as many as take its time
template <class F>
void for_each_column_block(const ExecutorRef& executor, Index columns, Index block, double products,
                           F&& f) {
  const auto threads = for_work(executor, [&] { return products * static_cast<double>(columns); });
  for_each_task(threads, blocks(columns, block), [&](Index task, Index /*worker*/) {
    f(task * block, (std::min)(block, columns - task * block));
  });
}

}  // namespace detail

FOVEA_NAMESPACE_END
