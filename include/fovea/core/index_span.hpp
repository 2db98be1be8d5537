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

/// How a type that is no contiguous range becomes an IndexSpan: a specialisation has `static
/// IndexSpan view(const X&)`. Those for Eigen's vectors are in fovea/core/eigen.hpp.
template <class X>
struct IndexSpanTraits;

namespace detail {

/// Integers that an IndexSpan reads: signed, of 32 or 64 bits.
template <class I>
concept IndexElement = std::signed_integral<I> &&(sizeof(I) == 4 || sizeof(I) == 8);

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

/// Integers that somebody else owns, such as lengths, the ends of packed sequences, positions and
/// tokens. Integers of 32 bits are read as they are, like those of 64: nothing is copied.
class IndexSpan {
 public:
  /// A place among the integers, which gives their values; valid while the span lives.
  class Iterator {
   public:
    using value_type = Index;       ///< What is read.
    using difference_type = Index;  ///< Distances.
    using pointer = void;           ///< There is none: what is read is a value.
    using reference = Index;        ///< The value.
    /// That of values which can be read in any order.
    using iterator_category = std::random_access_iterator_tag;

    /// Of no span.
    Iterator() = default;
    /// At the i-th integer.
    Iterator(const IndexSpan& span, Index i) : span_(&span), i_(i) {}

    /// The integer.
    Index operator*() const { return (*span_)[static_cast<std::size_t>(i_)]; }
    /// The integer n places behind.
    Index operator[](Index n) const { return *(*this + n); }
    /// Goes n places on.
    Iterator& operator+=(Index n) {
      i_ += n;
      return *this;
    }
    /// Goes n places back.
    Iterator& operator-=(Index n) { return *this += -n; }
    /// Goes to the next integer.
    Iterator& operator++() { return *this += 1; }
    /// Goes to the integer before.
    Iterator& operator--() { return *this += -1; }
    /// Goes to the next integer, and returns where it was.
    Iterator operator++(int) { return std::exchange(*this, *this + 1); }
    /// Goes to the integer before, and returns where it was.
    Iterator operator--(int) { return std::exchange(*this, *this - 1); }
    /// n places on.
    friend Iterator operator+(Iterator at, Index n) { return at += n; }
    /// n places on.
    friend Iterator operator+(Index n, Iterator at) { return at += n; }
    /// n places back.
    friend Iterator operator-(Iterator at, Index n) { return at -= n; }
    /// How many places a is behind b.
    friend Index operator-(const Iterator& a, const Iterator& b) { return a.i_ - b.i_; }
    /// Whether both are at the same place of a span.
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.i_ == b.i_; }
    /// The order of places.
    friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.i_ <=> b.i_; }

   private:
    const IndexSpan* span_ = nullptr;
    Index i_ = 0;
  };

  /// No integers.
  IndexSpan() = default;
  /// `size` integers from `data` on, each `step` behind the one before.
  template <detail::IndexElement I>
  IndexSpan(const I* data, std::size_t size, Index step = 1)
      : data_(reinterpret_cast<const std::byte*>(data)),
        size_(size),
        stride_(step * static_cast<Index>(sizeof(I))),
        is_wide_(sizeof(I) == 8) {}
  /// The integers of a std::vector, std::array, std::span or array.
  template <detail::IndexRange X>
  // NOLINTNEXTLINE(google-explicit-constructor): as a std::span is
  IndexSpan(const X& x) : IndexSpan(std::data(x), std::size(x)) {}
  /// The integers of a vector of Eigen (fovea/core/eigen.hpp).
  template <detail::HasIndexSpanTraits X>
  requires(!detail::IndexRange<X>)
      // NOLINTNEXTLINE(google-explicit-constructor): as a std::span is
      IndexSpan(const X& x)
      : IndexSpan(IndexSpanTraits<X>::view(x)) {}

  /// Catches every other type: it does not compile, and says why.
  template <class X>
  requires(!detail::IndexRange<X> && !detail::HasIndexSpanTraits<X> && !std::same_as<X, IndexSpan>)
      __attribute__((unavailable(
          "fovea: lengths, ends of sequences, positions and tokens are a std::vector, std::array, "
          "std::span or Eigen vector (<fovea/core/eigen.hpp>) of int32_t or int64_t")))
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
  // Copied, since `long` and `long long` are different types of the same 64 bits.
  template <class I>
  static Index read(const std::byte* from) {
    I value;
    std::memcpy(&value, from, sizeof(I));
    return value;
  }

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Index stride_ = 0;
  bool is_wide_ = true;
};

FOVEA_NAMESPACE_END
