// SPDX-License-Identifier: MIT
/// \file
/// A cache of the keys and values of some columns of every `stride` tokens, stored densely.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/softmax/block.hpp"

FOVEA_NAMESPACE_BEGIN

/// Which tokens are kept: for key head h the positions p with p % stride in [first[h], first[h] +
/// columns). They are stored densely, `columns` rows for every `stride` tokens.
struct SummaryShape {
  Index batch = 1;           ///< B
  Index heads = 1;           ///< Hk
  Index stride = 1;          ///< tokens of one block of columns
  Index columns = 0;         ///< kept columns of each block; 0: nothing is kept
  std::vector<Index> first;  ///< [heads] first kept column of each key head

  /// The number of rows that this many tokens may fill: at most the number of tokens, for any
  /// stride.
  Index rows_of(Index tokens) const {
    return tokens / stride * columns + (std::min)(tokens % stride, columns);
  }
};

namespace detail {

/// Rows of kept tokens, [B, H, rows, width].
template <class T>
class SummaryRows {
 public:
  SummaryRows() = default;

  /// \throws std::bad_alloc, also if the size does not fit Index
  SummaryRows(const SummaryShape& shape, Index width, Index rows)
      : heads_(shape.batch * shape.heads), width_(width), rows_(rows) {
    Index bytes = 0;
    const bool fits = multiply(rows, width, bytes) && multiply(bytes, Index{sizeof(T)}, bytes);
    if (!fits) FOVEA_THROW(std::bad_array_new_length());
    memory_ = Workspace(heads_, bytes);
  }

  Index size_bytes() const { return memory_.size_bytes(); }

  /// The rows of one head, from the first one on.
  const T* head(Index b, const SummaryShape& shape, Index h) const {
    return memory_.template data<T>() + (b * shape.heads + h) * rows_ * width_;
  }

  /// Stores the kept ones among rows [from, from + count) of x, the tokens [first, first + count).
  void put(const SummaryShape& shape, const View<const T>& x, Index from, Index first,
           Index count) noexcept {
    if (memory_.size_bytes() == 0) return;
    for (Index h = 0; h < heads_; ++h) {
      const Index key_head = h % shape.heads;
      const Index column = shape.first[static_cast<std::size_t>(key_head)];
      T* const rows = memory_.template data<T>() + h * rows_ * width_;
      for (Index block = first / shape.stride; block * shape.stride < first + count; ++block) {
        const Index begin = block * shape.stride + column;  // the block's first token kept
        const Index end = (std::min)(first + count, begin + shape.columns);
        for (Index p = (std::max)(first, begin); p < end; ++p) {
          T* const to = rows + (block * shape.columns + p - begin) * width_;
          for (Index c = 0; c < width_; ++c)
            to[c] = x(h / shape.heads, key_head, from + p - first, c);
        }
      }
    }
  }

  /// Copies the first rows of every head.
  /// \pre both hold them
  void copy_from(const SummaryRows& other, Index rows) noexcept {
    if (rows == 0 || memory_.size_bytes() == 0) return;
    for (Index h = 0; h < heads_; ++h) {
      std::memcpy(memory_.template data<T>() + h * rows_ * width_,
                  other.memory_.template data<T>() + h * other.rows_ * width_,
                  static_cast<std::size_t>(rows * width_) * sizeof(T));
    }
  }

 private:
  Index heads_ = 0;  // of the whole batch: B H
  Index width_ = 0;
  Index rows_ = 0;
  Workspace memory_;
};

}  // namespace detail

/// Keys [B, Hk, rows, D] and values [B, Hk, rows, Dv] of the kept columns.
template <class T>
class SummaryCache {
 public:
  /// An empty cache; allocates nothing yet.
  SummaryCache(SummaryShape shape, Index width, Index value_width)
      : shape_(std::move(shape)), width_(width), value_width_(value_width) {}

  /// Bytes of memory for keys and values.
  Index memory_bytes() const { return keys_.size_bytes() + values_.size_bytes(); }

  /// Where one key head's keys and values are stored.
  KeyRows key_rows(Index h) const {
    return {0, shape_.stride, shape_.columns, shape_.first[static_cast<std::size_t>(h)]};
  }
  /// The kept keys of a key head, [rows, D].
  const T* keys(Index b, Index h) const { return keys_.head(b, shape_, h); }
  /// The kept values of a key head, [rows, Dv].
  const T* values(Index b, Index h) const { return values_.head(b, shape_, h); }

  /// Makes room for that many tokens in all. Growing at least doubles the memory, so that a token
  /// costs O(1) on average.
  /// \param length number of tokens already stored
  /// \throws std::bad_alloc, with nothing changed
  void make_room(Index length, Index tokens) {
    const Index rows = shape_.rows_of(tokens);
    if (rows > rows_) move_to(length, (std::max)(rows, 2 * rows_));
  }

  /// Makes room for that many tokens in all, allocating no more than that.
  /// \throws std::bad_alloc, with nothing changed
  void reserve(Index length, Index tokens) {
    if (shape_.rows_of(tokens) > rows_) move_to(length, shape_.rows_of(tokens));
  }

  /// Stores rows [from, from + count) of k and v as the tokens [first, first + count).
  /// \pre there is room for them
  void append(const View<const T>& k, const View<const T>& v, Index from, Index first,
              Index count) noexcept {
    keys_.put(shape_, k, from, first, count);
    values_.put(shape_, v, from, first, count);
  }

  /// A copy of the first `length` tokens, with memory for no more.
  /// \throws std::bad_alloc
  SummaryCache copy(Index length) const {
    SummaryCache other(shape_, width_, value_width_);
    other.copy_from(*this, length, shape_.rows_of(length));
    return other;
  }

 private:
  void move_to(Index length, Index rows) {
    SummaryCache other(shape_, width_, value_width_);
    other.copy_from(*this, length, rows);
    *this = std::move(other);
  }

  /// Allocates `rows` rows for each head, and copies the other cache's rows of its first `length`
  /// tokens.
  void copy_from(const SummaryCache& other, Index length, Index rows) {
    keys_ = {shape_, width_, rows};
    values_ = {shape_, value_width_, rows};
    rows_ = rows;
    keys_.copy_from(other.keys_, shape_.rows_of(length));
    values_.copy_from(other.values_, shape_.rows_of(length));
  }

  SummaryShape shape_;
  Index width_;
  Index value_width_;
  Index rows_ = 0;  // rows of a head that fit the memory
  detail::SummaryRows<T> keys_;
  detail::SummaryRows<T> values_;
};

FOVEA_NAMESPACE_END
