// SPDX-License-Identifier: MIT
/// \file
/// Activations: views [B, 1, L, C] with dense rows, buffers that keep them between forward and
/// backward, and the division of rows into tasks.
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

/// Owns a dense tensor of four dimensions. Resizing to no more elements keeps the memory, so calls
/// with repeated shapes do not allocate.
template <class T>
class Buffer {
 public:
  /// Resizes the tensor. Its elements are unspecified.
  /// \throws std::bad_alloc if allocation fails
  View<T> resize(const Shape& shape) {
    T element{};
    const Index size = View<T>(&element, shape).size();  // this checks the product of the extents
    if (size * static_cast<Index>(sizeof(T)) > bytes_.size_bytes()) {
      bytes_ = Workspace();  // frees the old memory first
      bytes_ = Workspace(size, static_cast<Index>(sizeof(T)));
    }
    shape_ = shape;
    return view();
  }

  /// Resizes the tensor to activations [batch, 1, rows, width]. \throws as above
  View<T> resize(Index batch, Index rows, Index width) { return resize({batch, 1, rows, width}); }

  /// The tensor.
  View<T> view() { return {bytes_.data<T>(), shape_}; }
  /// The tensor (read-only).
  View<const T> view() const { return {bytes_.data<T>(), shape_}; }

 private:
  Workspace bytes_;
  Shape shape_{};
};

/// A sequence, and inputs that belong to its tokens. Token-wise layers read only x. Attention
/// layers reject inputs that their operator does not read.
template <class T>
struct Tokens {
  ViewMember<const T> x = {};  ///< [B, 1, L, C] the tokens
  /// [B] the number of tokens of each sequence; if empty, L for all.
  IndexSpan key_lengths = {};
  /// [B, H, L, K] the keys that each row attends to; IndexedAttention only.
  ViewMember<const Index> indices = {};
  /// [B, H, L, M] the dominant queries of each key; FsatAttention only.
  ViewMember<const T> dominant = {};
  /// [B, H, L, M] the query of each slot's random edge, in place of the draws; FsatAttention and
  /// FsatLayer only.
  ViewMember<const Index> random = {};
  /// [S + 1], ascending from 0 to L, with B = 1: sequence s has the rows [cu_seqlens[s],
  /// cu_seqlens[s + 1]). If empty, the sequences are not packed.
  IndexSpan cu_seqlens = {};
  /// [B, H, L, L], any extent may be 1 (broadcast): added to the logits of softmax attention.
  ViewMember<const T> bias = {};
  /// [B, H, L, L], any extent may be 1 (broadcast), for softmax attention: false hides the pair.
  ViewMember<const bool> mask = {};
  /// Same shape as bias: if given, backward passes add the gradient of bias to it.
  ViewMember<T> d_bias = {};
  /// The training step. If set, dropout is applied; otherwise the tokens are evaluated. Backward
  /// takes the step of its forward pass.
  std::optional<TrainingStep> training = {};

  Tokens() = default;
  /// A sequence, optionally with key lengths.
  template <class X>
  requires std::convertible_to<const X&, View<const T>>
  // NOLINTNEXTLINE(google-explicit-constructor): a tensor is a sequence without lengths
  Tokens(const X& tensor, IndexSpan lengths = {}) : x(tensor), key_lengths(lengths) {}

  /// The number of tokens of sequence b.
  Index length(Index b) const { return length(b, x.rows()); }
  /// The same for a sequence of `rows` rows, of which x may be a part.
  Index length(Index b, Index rows) const { return key_lengths.value_or(b, rows); }

  /// The same tokens with other channels. \param channels [B, 1, L, any]
  Tokens with(const View<const T>& channels) const {
    Tokens other = *this;
    other.x = channels;
    return other;
  }

  /// The same tokens for another layer. \param after added to the layer number
  Tokens in_layer(std::size_t after) const {
    Tokens other = *this;
    if (other.training) other.training->layer += static_cast<std::uint32_t>(after);
    return other;
  }
};

namespace detail {

/// Throws if the arguments of as_heads are invalid.
template <class T>
void check_heads(const View<T>& x, Index first, Index heads, Index head_width) {
  constexpr const char* name = "as_heads";
  if (x.heads() != 1) refuse_extent(name, "x", x.shape(), 1, "1: heads are columns of x");
  if (x.width() > 1 && x.strides()[3] != 1) {
    refuse(name, "stride of width of x", std::to_string(x.strides()[3]),
           "1: the channels of a head are contiguous");
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

/// Views the concatenated heads in a matrix of activations: columns of [B, 1, L, W], starting at
/// `first`, as [B, heads, L, head_width]. Batch and rows may have any strides.
/// \throws std::invalid_argument if x has several heads, its columns do not have unit stride, or
/// the columns are out of range
template <class T>
[[nodiscard]] View<T> as_heads(const View<T>& x, Index first, Index heads, Index head_width) {
  detail::check_heads(x, first, heads, head_width);
  const Shape shape = {x.batch(), heads, x.rows(), head_width};
  return {x.size() == 0 ? x.data() : x.data() + first,
          shape,
          {x.strides()[0], head_width, x.strides()[2], 1}};
}

/// How a backward pass stores the gradient of its input.
enum class OutputMode {
  write,  ///< the gradient is overwritten
  add     ///< the gradient is accumulated
};

namespace detail {

/// Rows of activations as an Eigen matrix.
template <class T>
using RowsMap = Eigen::Map<RowMatrix<std::remove_const_t<T>>, Eigen::Unaligned,
                           Eigen::OuterStride<Eigen::Dynamic>>;
/// Rows of activations as a read-only Eigen matrix.
template <class T>
using ConstRowsMap = Eigen::Map<const RowMatrix<std::remove_const_t<T>>, Eigen::Unaligned,
                                Eigen::OuterStride<Eigen::Dynamic>>;

/// The first element of row n of sequence b; if the view is empty, its data pointer.
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

/// Rows per task: whole register blocks at every level, and enough that packing a weight matrix
/// costs little compared with the product.
inline constexpr Index kRowsPerTask = 192;
/// Columns per task over all rows. They fill whole cache lines.
inline constexpr Index kColumnsPerTask = 64;

/// The number of blocks that cover an extent.
constexpr Index blocks(Index extent, Index block) { return (extent + block - 1) / block; }

/// Calls f(b, first, count, part) for each of some parts of each block of rows, over the executor.
template <class F>
void for_each_part(const ExecutorRef& threads, Index batch, Index rows, Index parts, F&& f) {
  const Index per_batch = blocks(rows, kRowsPerTask);
  for_each_task(threads, batch * per_batch * parts, [&](Index task, Index /*worker*/) {
    const Index block = task / parts;
    const Index first = block % per_batch * kRowsPerTask;
    f(block / per_batch, first, (std::min)(kRowsPerTask, rows - first), task % parts);
  });
}

/// Calls f(b, first, count) for each block of rows, on the executor, or on the calling thread if
/// that is faster. Blocks depend only on the shape.
/// \param products cost of a row, in multiply-adds
template <class F>
void for_each_row_block(const ExecutorRef& executor, Index batch, Index rows, double products,
                        F&& f) {
  const auto threads = for_work(
      executor, [&] { return products * static_cast<double>(batch) * static_cast<double>(rows); });
  for_each_part(threads, batch, rows, 1,
                [&](Index b, Index first, Index count, Index /*part*/) { f(b, first, count); });
}

/// Calls f(first, count) for each block of columns, on the executor, or on the calling thread if
/// that is faster. Blocks depend only on the shape.
/// \param products cost of a column, in multiply-adds
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
