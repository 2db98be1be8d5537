// SPDX-License-Identifier: MIT
/// \file
/// Tensors of one sequence whose rows stand together in a window, so that a row with all its heads
/// and tensors is one piece of a message.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fovea/core/view.hpp"
#include "fovea/distributed/row_window.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The view of rows that lie at other places: row `from` of a tensor becomes row `to`, and
/// the tensor has `rows` rows, of which only those that it had may be used.
template <class T>
View<T> moved_rows(const View<T>& x, Index from, Index to, Index rows) {
  const Shape& s = x.strides();
  Shape strides = s;
  // The stride of a single row need not lead anywhere.
  if (x.rows() == 1) strides[2] = x.width() * x.strides()[3];
  Shape shape = x.shape();
  shape[2] = rows;
  return View<T>(x.data() + from * s[2] - to * strides[2], shape, strides);
}

/// The rows of some tensors of type T, of one batch entry after the other. Row n of entry b is row
/// b rows + n of the window.
template <class T>
class RowTensors {
 public:
  RowTensors() = default;

  /// Room for tensors [batch, heads, rows, width] of these heads and widths.
  /// \throws std::bad_alloc
  RowTensors(Index batch, Index rows, const std::vector<std::pair<Index, Index>>& heads_and_widths)
      : batch_(batch), rows_(rows) {
    for (const auto& [heads, width] : heads_and_widths) {
      tensors_.push_back({heads, width, row_});
      row_ += heads * width;
    }
    window_ = RowWindow(Workspace::size_of(batch, rows), row_ * Index{sizeof(T)});
  }

  /// Says that all of these rows will be written, of each batch entry.
  void expect(const std::vector<Range>& ranges) const {
    for (Index b = 0; b < batch_; ++b) {
      for (const Range& r : ranges) window_.expect({b * rows_ + r.begin, b * rows_ + r.end});
    }
  }

  /// The rows in memory.
  const RowWindow& window() const { return window_; }
  /// The bytes of a row of all tensors.
  Index row_bytes() const { return row_ * Index{sizeof(T)}; }
  /// The number of batch entries.
  Index batch() const { return batch_; }
  /// The number of rows of the sequence.
  Index rows() const { return rows_; }

  /// Tensor t, of all rows.
  View<T> tensor(std::size_t t) const {
    const Tensor& x = tensors_[t];
    return View<T>(reinterpret_cast<T*>(window_.row(0)) + x.first,
                   {batch_, x.heads, rows_, x.width}, {rows_ * row_, x.width, row_, 1});
  }

  /// Writes the rows of a rank to tensor t.
  /// \param local [batch, heads, rows of the rank, width]   \param own the rows of the rank
  void put(std::size_t t, const View<const T>& local, const std::vector<Range>& own) const {
    for_each_row(t, local, own, [](T* whole, const T* part, Index stride, Index width) {
      if (stride == 1) {
        std::copy_n(part, width, whole);
      } else {
        for (Index c = 0; c < width; ++c) whole[c] = part[c * stride];
      }
    });
  }

  /// Reads the rows of a rank from tensor t.
  /// \param local [batch, heads, rows of the rank, width], written
  void get(std::size_t t, const View<T>& local, const std::vector<Range>& own) const {
    for_each_row(t, local, own, [](const T* whole, T* part, Index stride, Index width) {
      for (Index c = 0; c < width; ++c) part[c * stride] = whole[c];
    });
  }

 private:
  /// Calls f(row of the tensor, the same row among the rank's, stride of its columns, width).
  template <class U, class F>
  void for_each_row(std::size_t t, const View<U>& local, const std::vector<Range>& own,
                    const F& f) const {
    const View<T> whole = tensor(t);
    if (local.size() == 0) return;
    const Index stride = local.strides()[3];
    Index at = 0;
    for (const Range& range : own) {
      for (Index n = range.begin; n < range.end; ++n, ++at) {
        for (Index b = 0; b < whole.batch(); ++b) {
          for (Index h = 0; h < whole.heads(); ++h) {
            f(&whole(b, h, n, 0), &local(b, h, at, 0), stride, whole.width());
          }
        }
      }
    }
  }

  struct Tensor {
    Index heads;
    Index width;
    Index first;  // the place of its first element in a row
  };

  Index batch_ = 0;
  Index rows_ = 0;
  Index row_ = 0;  // elements of a row
  std::vector<Tensor> tensors_;
  RowWindow window_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
