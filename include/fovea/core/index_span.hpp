// SPDX-License-Identifier: MIT
/// \file
/// Integers of 32 or 64 bits that a call reads: lengths, the ends of packed sequences, positions.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// How a type that is not a contiguous range becomes an IndexSpan: a specialisation has
/// `static IndexSpan view(const X&)`. Those for Eigen's vectors are in fovea/core/eigen.hpp.
template <class X>
struct IndexSpanTraits;

namespace detail {

/// Integers that an IndexSpan reads: signed, of 32 or 64 bits.
template <class T>
concept IndexElement = std::signed_integral<T> &&(sizeof(T) == 4 || sizeof(T) == 8);

/// Consecutive integers: std::vector, std::array, std::span and arrays.
template <class X>
concept IndexRange = requires(const X& x) {
  requires std::contiguous_iterator<decltype(std::begin(x))>;
  requires IndexElement<std::remove_cvref_t<decltype(*std::begin(x))>>;
  std::data(x);
  std::size(x);
};

/// A type that has IndexSpanTraits.
template <class X>
concept HasIndexSpanTraits = requires(const X& x) {
  IndexSpanTraits<std::remove_cvref_t<X>>::view(x);
};

}  // namespace detail

/// A non-owning span of integers, such as lengths, the ends of packed sequences, positions and
/// tokens. Both 32-bit and 64-bit integers are read in place, without copying.
class IndexSpan {
 public:
  /// An iterator that reads values; valid while the span lives.
  class Iterator {
   public:
    using value_type = Index;       ///< The type of the values.
    using difference_type = Index;  ///< Distances.
    using pointer = void;           ///< None: dereferencing returns a value.
    using reference = Index;        ///< The value.
    /// Random access.
    using iterator_category = std::random_access_iterator_tag;

    /// An iterator of no span.
    Iterator() = default;
    /// At the i-th integer.
    Iterator(const IndexSpan& span, Index i) : span_(&span), i_(i) {}

    /// The integer.
    Index operator*() const { return (*span_)[static_cast<std::size_t>(i_)]; }
    /// The integer n places further on.
    Index operator[](Index n) const { return *(*this + n); }
    /// Advances by n.
    Iterator& operator+=(Index n) {
      i_ += n;
      return *this;
    }
    /// Moves back by n.
    Iterator& operator-=(Index n) { return *this += -n; }
    /// Advances by one.
    Iterator& operator++() { return *this += 1; }
    /// Moves back by one.
    Iterator& operator--() { return *this += -1; }
    /// Advances by one and returns the old iterator.
    Iterator operator++(int) { return std::exchange(*this, *this + 1); }
    /// Moves back by one and returns the old iterator.
    Iterator operator--(int) { return std::exchange(*this, *this - 1); }
    /// `at` advanced by n.
    friend Iterator operator+(Iterator at, Index n) { return at += n; }
    /// `at` advanced by n.
    friend Iterator operator+(Index n, Iterator at) { return at += n; }
    /// `at` moved back by n.
    friend Iterator operator-(Iterator at, Index n) { return at -= n; }
    /// The distance from b to a.
    friend Index operator-(const Iterator& a, const Iterator& b) { return a.i_ - b.i_; }
    /// Whether both refer to the same index.
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.i_ == b.i_; }
    /// Compares the indices.
    friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.i_ <=> b.i_; }

   private:
    const IndexSpan* span_ = nullptr;
    Index i_ = 0;
  };

  /// No integers.
  IndexSpan() = default;
  /// `size` integers from `data` on, `step` elements apart.
  template <detail::IndexElement T>
  IndexSpan(const T* data, std::size_t size, Index step = 1)
      : data_(reinterpret_cast<const std::byte*>(data)),
        size_(size),
        stride_(step * static_cast<Index>(sizeof(T))),
        is_wide_(sizeof(T) == 8) {}
  /// The integers of a std::vector, std::array, std::span or array.
  template <detail::IndexRange X>
  // NOLINTNEXTLINE(google-explicit-constructor): as a std::span is
  IndexSpan(const X& x) : IndexSpan(std::data(x), std::size(x)) {}
  /// The integers of an Eigen vector (fovea/core/eigen.hpp).
  template <detail::HasIndexSpanTraits X>
  requires(!detail::IndexRange<X>)
      // NOLINTNEXTLINE(google-explicit-constructor): as a std::span is
      IndexSpan(const X& x)
      : IndexSpan(IndexSpanTraits<X>::view(x)) {}

  /// Catches every other type, to fail with a clear message.
  template <class X>
  requires(!detail::IndexRange<X> && !detail::HasIndexSpanTraits<X> && !std::same_as<X, IndexSpan>)
      __attribute__((unavailable(
          "fovea: lengths, ends of sequences, positions and tokens must be a std::vector, "
          "std::array, std::span or Eigen vector (<fovea/core/eigen.hpp>) of int32_t or int64_t")))
      // NOLINTNEXTLINE(google-explicit-constructor)
      IndexSpan(const X& x);

  /// The number of integers.
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Whether there are none.
  [[nodiscard]] bool empty() const { return size_ == 0; }
  /// The i-th integer. \pre i < size()
  Index operator[](std::size_t i) const {
    const std::byte* from = data_ + static_cast<Index>(i) * stride_;
    if (is_wide_) return read<std::int64_t>(from);
    return read<std::int32_t>(from);
  }
  /// The i-th integer, or `otherwise` if there are none. \pre empty() or i < size()
  [[nodiscard]] Index value_or(Index i, Index otherwise) const {
    return empty() ? otherwise : (*this)[static_cast<std::size_t>(i)];
  }
  /// The first integer. \pre not empty()
  [[nodiscard]] Index front() const { return (*this)[0]; }
  /// The last integer. \pre not empty()
  [[nodiscard]] Index back() const { return (*this)[size_ - 1]; }
  /// `count` integers from the i-th one on. \pre i + count <= size()
  [[nodiscard]] IndexSpan subspan(std::size_t i, std::size_t count) const {
    IndexSpan part = *this;
    part.data_ += static_cast<Index>(i) * stride_;
    part.size_ = count;
    return part;
  }
  /// At the first integer; valid while this span lives.
  [[nodiscard]] Iterator begin() const { return {*this, 0}; }
  /// Behind the last integer.
  [[nodiscard]] Iterator end() const { return {*this, static_cast<Index>(size_)}; }

 private:
  // Copies bytes, since `long` and `long long` are different 64-bit types.
  template <class T>
  static Index read(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Index stride_ = 0;
  bool is_wide_ = true;
};

FOVEA_NAMESPACE_END
