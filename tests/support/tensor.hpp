// SPDX-License-Identifier: MIT
/// \file
/// Tensors for tests: any order of the axes in memory, offsets, gaps, column strides, negative and
/// zero strides; NaN outside of elements; and, if requested, storage between guard pages.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/index.hpp"

namespace fovea_test {

/// Where the storage of a tensor touches a page that cannot be read or written.
enum class Guard { none, before, behind };

/// The layout of a tensor in memory.
struct Layout {
  /// The axes (0 batch, 1 heads, 2 rows, 3 width) from the slowest to the fastest.
  std::array<std::size_t, 4> order = {0, 1, 2, 3};
  Index offset = 0;     // elements before the tensor
  Index innermost = 1;  // stride of the fastest axis
  Index gap = 0;        // elements between the pieces of every other axis
  std::array<bool, 4> reversed = {};
  std::array<bool, 4> broadcast = {};  // stride 0: one element serves the whole axis
  Guard guard = Guard::none;
};

/// The 24 orders of the axes.
inline std::vector<std::array<std::size_t, 4>> all_axis_orders() {
  std::vector<std::array<std::size_t, 4>> orders;
  std::array<std::size_t, 4> order = {0, 1, 2, 3};
  do orders.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

/// Bytes that begin or end at a guard page; all adjacent pages are guard pages.
class GuardedBytes {
 public:
  GuardedBytes(std::size_t size, Guard guard) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t middle = (size + page - 1) / page * page;
    mapped_ = middle + 2 * page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    if (middle > 0 && mprotect(base_ + page, middle, PROT_READ | PROT_WRITE) != 0) {
      throw std::bad_alloc();
    }
    data_ = base_ + page + (guard == Guard::behind ? middle - size : 0);
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { munmap(base_, mapped_); }

  std::byte* data() const { return data_; }

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t mapped_ = 0;
};

/// Memory of the heap. It begins at a cache line if its size is a multiple of one, as in tensor
/// libraries: kernels may read such rows in place.
class HeapBytes {
 public:
  explicit HeapBytes(std::size_t size) : is_aligned_(size % kLine == 0) {
    data_ = is_aligned_ ? ::operator new(size, kAlignment) : ::operator new(size);
  }
  HeapBytes(const HeapBytes&) = delete;
  HeapBytes& operator=(const HeapBytes&) = delete;
  ~HeapBytes() {
    if (is_aligned_) {
      ::operator delete(data_, kAlignment);
    } else {
      ::operator delete(data_);
    }
  }

  void* data() const { return data_; }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::align_val_t kAlignment{kLine};
  bool is_aligned_;
  void* data_ = nullptr;
};

/// Owns a tensor [B, H, N, D] of T in a given layout, all NaN at first.
template <class T>
class Tensor {
 public:
  explicit Tensor(const Shape& shape = {}, const Layout& layout = {}) : shape_(shape) {
    place(layout);
    allocate(layout.guard);
    std::fill_n(data_, storage_, std::numeric_limits<T>::quiet_NaN());
  }

  View<T> view() const { return View<T>(data_ + first_, shape_, strides_); }
  const Shape& shape() const { return shape_; }
  T& operator()(Index b, Index h, Index n, Index d) const {
    return data_[first_ + b * strides_[0] + h * strides_[1] + n * strides_[2] + d * strides_[3]];
  }

  /// Every element from f(b, h, n, d).
  template <class F>
  void fill(F&& f) const {
    for_each_index(shape_, [&](Index b, Index h, Index n, Index d) {
      (*this)(b, h, n, d) = static_cast<T>(f(b, h, n, d));
    });
  }

  /// The elements in logical order, the last index fastest.
  std::vector<T> values() const {
    std::vector<T> all;
    all.reserve(as_size(size_of(shape_)));
    for_each_index(shape_,
                   [&](Index b, Index h, Index n, Index d) { all.push_back((*this)(b, h, n, d)); });
    return all;
  }

  /// The same elements in another layout.
  Tensor in(const Layout& layout) const {
    Tensor other(shape_, layout);
    other.fill([&](Index b, Index h, Index n, Index d) { return (*this)(b, h, n, d); });
    return other;
  }

  /// How many places that are no element are no longer the NaN they began as.
  Index changed_gaps() const {
    if (is_dense()) return 0;
    std::vector<char> element(as_size(storage_));
    for_each_index(shape_, [&](Index b, Index h, Index n, Index d) {
      element[as_size(&(*this)(b, h, n, d) - data_)] = 1;
    });
    const auto poison = bits_of(std::numeric_limits<T>::quiet_NaN());
    Index changed = 0;
    for (Index i = 0; i < storage_; ++i) {
      if (element[as_size(i)] == 0 && bits_of(data_[i]) != poison) ++changed;
    }
    return changed;
  }

 private:
  /// Whether each place is an element.
  bool is_dense() const {
    for (std::size_t n = 0; n < 4; ++n) {
      if (strides_[n] == 0 && shape_[n] > 1) return false;
    }
    return storage_ == size_of(shape_);
  }

  void place(const Layout& layout) {
    Index stride = layout.innermost;
    first_ = layout.offset;
    Index last = layout.offset;
    for (std::size_t n = 4; n-- > 0;) {
      const std::size_t axis = layout.order[n];
      if (layout.broadcast[axis]) continue;
      const Index reach = stride * std::max<Index>(0, shape_[axis] - 1);
      strides_[axis] = layout.reversed[axis] ? -stride : stride;
      if (layout.reversed[axis]) first_ += reach;
      last += reach;
      stride = stride * std::max<Index>(1, shape_[axis]) + layout.gap;
    }
    // A guard page must follow the tensor's own end.
    storage_ = size_of(shape_) == 0 ? 0 : last + 1 + (layout.guard == Guard::none ? layout.gap : 0);
    if (storage_ == 0) first_ = 0;
  }

  void allocate(Guard guard) {
    if (guard == Guard::none) {
      heap_ = std::make_unique<HeapBytes>(as_size(storage_) * sizeof(T));
      data_ = static_cast<T*>(heap_->data());
    } else {
      guarded_ = std::make_unique<GuardedBytes>(as_size(storage_) * sizeof(T), guard);
      data_ = reinterpret_cast<T*>(guarded_->data());
    }
  }

  Shape shape_{};
  Shape strides_{};
  Index first_ = 0;    // the place of [0, 0, 0, 0]
  Index storage_ = 0;  // places in all
  T* data_ = nullptr;
  std::unique_ptr<HeapBytes> heap_;
  std::unique_ptr<GuardedBytes> guarded_;
};

/// [first, first + count) of dimension d of a view.
template <class U>
View<U> cut(const View<U>& x, std::size_t d, Index first, Index count) {
  Shape shape = x.shape();
  shape[d] = count;
  return {x.size() == 0 ? x.data() : x.data() + first * x.strides()[d], shape, x.strides()};
}

/// The same of a tensor that may be broadcast.
template <class U>
View<U> cut_logits(const View<U>& x, std::size_t d, Index first, Index count) {
  return x.empty() || x.shape()[d] == 1 ? x : cut(x, d, first, count);
}

}  // namespace fovea_test
