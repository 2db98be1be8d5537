// SPDX-License-Identifier: MIT
/// \file
/// Tensors of all rows of a sequence in one window. Kernels address rows by sequence position, so
/// that sums have the same boundaries as in one process.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fovea/core/view.hpp"
#include "fovea/distributed/rows/row_window.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A view with shifted rows: row `from` of a tensor becomes row `to` of `rows` rows; only existing
/// rows may be accessed.
template <class T>
View<T> moved_rows(const View<T>& x, Index from, Index to, Index rows) {
  const Shape& s = x.strides();
  Shape strides = s;
  // The stride of a single row may be invalid.
  if (x.rows() == 1) strides[2] = x.width() * x.strides()[3];
  Shape shape = x.shape();
  shape[2] = rows;
  return View<T>(x.data() + from * s[2] - to * strides[2], shape, strides);
}

/// Rows of the heads of one tensor in a window: row n of head h begins at first_byte + (h rows + n)
/// row_bytes.
struct RowsInWindow {
  Index first_byte = 0;  ///< the first row of the first head
  Index row_bytes = 0;   ///< the stride of rows
  Index heads = 0;       ///< heads of all batch entries
  Index rows = 0;        ///< rows of each head

  /// The bytes of some rows of a head.
  Range bytes(Index head, const Range& range) const {
    const Index first = first_byte + head * rows * row_bytes;
    return {first + range.begin * row_bytes, first + range.end * row_bytes};
  }
};

/// Some tensors of type T.
template <class T>
class RowTensors {
 public:
  RowTensors() = default;

  /// Allocates tensors [batch, heads, rows, width] of these heads and widths.
  /// \throws std::bad_alloc
  RowTensors(Index batch, Index rows, const std::vector<std::pair<Index, Index>>& heads_and_widths)
      : RowTensors(batch, rows, heads_and_widths, nullptr) {}

  /// The same, reusing the memory that a window keeps between calls: rows neither put nor received
  /// are unspecified. \param home see RowWindow; null: new memory, zero-initialised
  RowTensors(Index batch, Index rows, const std::vector<std::pair<Index, Index>>& heads_and_widths,
             RowWindow* home)
      : batch_(batch) {
    Index bytes = 0;
    for (const auto& [heads, width] : heads_and_widths) {
      const Index row_bytes = width * Index{sizeof(T)};
      heads_.push_back(heads);
      places_.push_back({bytes, row_bytes, Workspace::size_of(batch, heads), rows});
      const Index of_rows = Workspace::size_of(Workspace::size_of(batch, heads), rows);
      const Index size = Workspace::size_of(of_rows, row_bytes);
      // Each begins at its own large page.
      constexpr Index page = kLargePage;
      bytes += Workspace::size_of((size + page - 1) / page, page);
    }
    window_ = home == nullptr ? RowWindow(bytes) : RowWindow(bytes, *home);
  }

  /// The memory.
  const RowWindow& window() const { return window_; }
  /// The placement of each tensor's rows.
  const std::vector<RowsInWindow>& places() const { return places_; }

  /// Tensor t, of all rows.
  View<T> tensor(std::size_t t) const {
    const RowsInWindow& x = places_[t];
    const Index width = x.row_bytes / Index{sizeof(T)};
    return View<T>(reinterpret_cast<T*>(window_.data() + x.first_byte),
                   {batch_, heads_[t], x.rows, width});
  }

  /// Announces that all of these rows will be written: large pages that they mostly fill are
  /// requested.
  void expect(const std::vector<Range>& ranges) const {
    LargePages pages(window_);
    for_each_bytes(ranges, [&](const Range& bytes) { pages.add(bytes); });
    for (const Range& bytes : pages.found()) window_.take_large_pages(bytes);
  }
  /// Releases the memory of all rows but these.
  void forget_all_but(const std::vector<Range>& ranges) const {
    Index begin = 0;
    for_each_bytes(ranges, [&](const Range& bytes) {
      window_.forget({begin, bytes.begin});
      begin = bytes.end;
    });
    window_.forget({begin, window_.size_bytes()});
  }
  /// Releases the memory of these rows.
  void forget(const std::vector<Range>& ranges) const {
    for_each_bytes(ranges, [&](const Range& bytes) { window_.forget(bytes); });
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
  template <class F>
  void for_each_bytes(const std::vector<Range>& ranges, const F& f) const {
    for (const RowsInWindow& x : places_) {
      for (Index head = 0; head < x.heads; ++head) {
        for (const Range& range : ranges) f(x.bytes(head, range));
      }
    }
  }

  /// Calls f(row of the tensor, the same row among the rank's, stride of its columns, width).
  template <class U, class F>
  void for_each_row(std::size_t t, const View<U>& local, const std::vector<Range>& own,
                    const F& f) const {
    const View<T> whole = tensor(t);
    if (local.size() == 0) return;
    const Index stride = local.strides()[3];
    for (Index b = 0; b < whole.batch(); ++b) {
      for (Index h = 0; h < whole.heads(); ++h) {
        Index at = 0;
        for (const Range& range : own) {
          for (Index n = range.begin; n < range.end; ++n, ++at) {
            f(&whole(b, h, n, 0), &local(b, h, at, 0), stride, whole.width());
          }
        }
      }
    }
  }

  Index batch_ = 0;
  std::vector<Index> heads_;  // of each tensor, in one sequence
  std::vector<RowsInWindow> places_;
  RowWindow window_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
