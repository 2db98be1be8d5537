// SPDX-License-Identifier: MIT
/// \file
/// The keys and values of the tokens so far, in a buffer that grows by doubling, or in a ring
/// buffer of the last tokens.
#pragma once

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Rows of tokens, [B, H, slots, width]. A ring of C tokens has 2 C slots: the token at position p
/// is stored in slot p % C and again C slots later, so that any C consecutive tokens are
/// contiguous.
template <class T>
class TokenRows {
 public:
  TokenRows() = default;

  /// \throws std::bad_alloc, also if the size does not fit Index
  TokenRows(Index batch, Index heads, Index width, Index tokens, bool ring)
      : batch_(batch), heads_(heads), width_(width), tokens_(tokens), ring_(ring) {
    Index rows = 0;
    Index bytes = 0;
    const bool fits = multiply(tokens, ring ? 2 : 1, slots_) && multiply(batch, heads, rows) &&
                      multiply(rows, slots_, rows) && multiply(width, Index{sizeof(T)}, bytes);
    if (!fits) FOVEA_THROW(std::bad_array_new_length());
    memory_ = Workspace(rows, bytes);
  }

  /// The number of tokens that fit.
  Index tokens() const { return tokens_; }
  Index size_bytes() const { return memory_.size_bytes(); }

  /// The tokens [first, first + count) of all heads.
  /// \pre they are contiguous
  View<const T> view(Index first, Index count) const {
    const Index head = slots_ * width_;
    const T* data = memory_.template data<T>();
    return {data == nullptr ? data : data + slot(first) * width_,
            {batch_, heads_, count, width_},
            {heads_ * head, head, width_, 1}};
  }

  /// Stores rows [from, from + count) of x as the tokens [first, first + count).
  void put(const View<const T>& x, Index from, Index first, Index count) noexcept {
    if (memory_.size_bytes() == 0) return;
    for (Index b = 0; b < batch_; ++b) {
      for (Index h = 0; h < heads_; ++h) {
        T* const head = memory_.template data<T>() + (b * heads_ + h) * slots_ * width_;
        for (Index n = 0; n < count; ++n) {
          T* const to = head + slot(first + n) * width_;
          for (Index c = 0; c < width_; ++c) to[c] = x(b, h, from + n, c);
          if (ring_) std::copy_n(to, width_, to + tokens_ * width_);
        }
      }
    }
  }

 private:
  Index slot(Index p) const { return ring_ ? p % tokens_ : p; }

  Index batch_ = 0;
  Index heads_ = 0;
  Index width_ = 0;
  Index tokens_ = 0;
  bool ring_ = false;
  Index slots_ = 0;
  Workspace memory_;
};

}  // namespace detail

/// The tokens stored in a cache, from position `first` on.
template <class T>
struct CachedTokens {
  Index first = 0;       ///< position of the first stored token
  View<const T> keys;    ///< [B, Hk, tokens, D]
  View<const T> values;  ///< [B, Hk, tokens, Dv]
};

/// Keys [B, Hk, tokens, D] and values [B, Hk, tokens, Dv] to which tokens are appended.
template <class T>
class KeyValueCache {
 public:
  /// The value of `kept` that keeps all tokens.
  static constexpr Index kAll = (std::numeric_limits<Index>::max)();

  /// The sizes of a cache.
  struct Shape {
    Index batch = 1;        ///< B
    Index heads = 1;        ///< Hk
    Index width = 0;        ///< D
    Index value_width = 0;  ///< Dv
    /// Number of last tokens to keep; by default all. Memory grows to at most twice that number.
    Index kept = kAll;
  };

  /// An empty cache; allocates nothing yet.
  explicit KeyValueCache(const Shape& shape) : shape_(shape) {}

  /// The sizes given to the constructor.
  const Shape& shape() const { return shape_; }
  /// The number of tokens appended, including those no longer kept.
  Index length() const { return length_; }
  /// The first stored position: all from here to the length are.
  Index first_held() const { return first_held_; }
  /// The number of tokens that fit the allocated memory.
  Index capacity() const { return keys_.tokens(); }
  /// Bytes of memory for keys and values.
  Index memory_bytes() const { return keys_.size_bytes() + values_.size_bytes(); }

  /// The keys at the positions [first, first + count), at most `kept` of those stored.
  View<const T> keys(Index first, Index count) const { return keys_.view(first, count); }
  /// The values at these positions.
  View<const T> values(Index first, Index count) const { return values_.view(first, count); }

  /// Makes room for that many tokens in all, or for the ring. Growing at least doubles the memory,
  /// so that a token costs O(1) on average.
  /// \throws std::bad_alloc, with nothing changed
  void make_room(Index tokens) {
    constexpr Index least = 16;
    if ((std::min)(tokens, shape_.kept) <= capacity()) return;
    const Index twice = capacity() > kAll / 2 ? kAll : 2 * capacity();
    move_to((std::max)({tokens, twice, least}));
  }

  /// Makes room for that many tokens in all, allocating no more than that.
  /// \throws std::bad_alloc, with nothing changed
  void reserve(Index tokens) {
    if ((std::min)(tokens, shape_.kept) > capacity()) move_to(tokens);
  }

  /// Appends rows [from, from + count) of k and v.
  /// \pre there is room for them
  void append(const View<const T>& k, const View<const T>& v, Index from, Index count) noexcept {
    const Index skipped =
        (std::max)(Index{0}, count - shape_.kept);  // the ring would overwrite them
    keys_.put(k, from + skipped, length_ + skipped, count - skipped);
    values_.put(v, from + skipped, length_ + skipped, count - skipped);
    length_ += count;
    first_held_ = (std::max)(first_held_, length_ - (std::min)(length_, shape_.kept));
  }

  /// Drops the tokens from position `length` on.
  /// \pre length <= length()
  void truncate(Index length) noexcept {
    length_ = length;
    if (length == 0) first_held_ = 0;
  }

  /// The stored tokens.
  CachedTokens<T> held() const {
    const Index count = length_ - first_held_;
    return {first_held_, keys(first_held_, count), values(first_held_, count)};
  }

  /// Replaces the stored tokens.
  /// \throws std::bad_alloc, with nothing changed
  void restart(const CachedTokens<T>& held) {
    KeyValueCache other(shape_);
    other.make_room(held.first + held.keys.rows());
    other.length_ = other.first_held_ = held.first;
    other.append(held.keys, held.values, 0, held.keys.rows());
    *this = std::move(other);
  }

  /// A copy, with memory for just the stored tokens.
  /// \throws std::bad_alloc
  KeyValueCache copy() const {
    KeyValueCache other(shape_);
    if (length_ > 0) other.copy_from(*this, length_);
    return other;
  }

 private:
  /// Moves the stored tokens into memory for this many tokens.
  void move_to(Index tokens) {
    KeyValueCache other(shape_);
    other.copy_from(*this, tokens);
    *this = std::move(other);
  }

  /// Allocates memory for this many tokens, and copies those of the other cache.
  void copy_from(const KeyValueCache& other, Index tokens) {
    const bool ring = tokens >= shape_.kept;
    const Index room = (std::min)(tokens, shape_.kept);
    keys_ = {shape_.batch, shape_.heads, shape_.width, room, ring};
    values_ = {shape_.batch, shape_.heads, shape_.value_width, room, ring};
    length_ = first_held_ = other.first_held_;
    const Index held = other.length_ - first_held_;
    append(other.keys(first_held_, held), other.values(first_held_, held), 0, held);
  }

  Shape shape_;
  detail::TokenRows<T> keys_;
  detail::TokenRows<T> values_;
  Index length_ = 0;
  Index first_held_ = 0;
};

FOVEA_NAMESPACE_END
