// SPDX-License-Identifier: MIT
/// \file
/// A LinearDecoder's state as bytes, for saving and restoring.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "fovea/attention/call/decoder_check.hpp"
#include "fovea/attention/call/key_value_cache.hpp"
#include "fovea/core/error.hpp"
#include "fovea/kernels/linear/delta_rule.hpp"

FOVEA_NAMESPACE_BEGIN

/// The header of saved bytes, so that no other kind of decoder accepts them.
struct LinearStateHeader {
  Index scalar_bytes = 0;  ///< size of a number in the type of the arithmetic
  DecoderShape shape;      ///< sizes of the decoder
  Index maps = 0;          ///< number of maps that are summed
  Index deltas = 0;        ///< number of terms of the delta rule: 0 or 1
  Index state_bytes = 0;   ///< size of the states of all key heads
  Index combine = 0;       ///< how maps are combined
  Index left = 0;    ///< keys that a near field shows, including the own key; 0: no near field
  Index length = 0;  ///< number of tokens so far

  /// The numbers that must match for a restore, with the constants that the layout of states
  /// depends on. Does not include the number of tokens.
  std::array<std::int64_t, 15> identity() const {
    constexpr std::int64_t magic = 0x316661667665766f;
    return {magic,           scalar_bytes,   shape.batch,       shape.query_heads,
            shape.key_heads, shape.width,    shape.value_width, maps,
            deltas,          state_bytes,    combine,           left,
            kLinearChunk,    kLinearSegment, kDeltaChunk};
  }
};

/// Writes a state as bytes, part by part.
class LinearStateWriter {
 public:
  /// Writes the header.
  explicit LinearStateWriter(const LinearStateHeader& header) {
    for (const std::int64_t number : header.identity()) put_number(number);
    put_number(header.length);
  }

  /// Appends bytes.
  void put(const void* data, Index bytes) {
    const auto* const first = static_cast<const std::byte*>(data);
    if (bytes > 0) bytes_.insert(bytes_.end(), first, first + bytes);
  }

  /// Appends the tokens of a near field.
  template <class C>
  void put(const CachedTokens<C>& held) {
    put_number(held.first);
    put_number(held.keys.rows());
    for (const View<const C>& x : {held.keys, held.values}) {
      for (Index b = 0; b < x.batch(); ++b) {
        for (Index h = 0; h < x.heads(); ++h) {
          for (Index n = 0; n < x.rows(); ++n) {
            for (Index c = 0; c < x.width(); ++c) put(&x(b, h, n, c), sizeof(C));
          }
        }
      }
    }
  }

  /// Returns all bytes written.
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void put_number(std::int64_t number) { put(&number, sizeof(number)); }

  std::vector<std::byte> bytes_;
};

/// Reads what LinearStateWriter wrote.
class LinearStateReader {
 public:
  /// Reads the header.
  /// \param op name of the operator, for messages
  /// \param bytes what a LinearStateWriter wrote; they must outlive this object
  /// \param expected the header of the decoder that restores them
  /// \throws std::invalid_argument if the bytes are from another kind of decoder
  LinearStateReader(const char* op, std::span<const std::byte> bytes,
                    const LinearStateHeader& expected)
      : op_(op), bytes_(bytes), left_(expected.left) {
    for (const std::int64_t number : expected.identity()) {
      if (get_number() != number) {
        refuse_state("belongs to another operator, shape, scalar type or version");
      }
    }
    length_ = get_number();
    if (length_ < 0 || length_ > kMostDecoderTokens) refuse_state("has an impossible length");
  }

  /// The number of tokens of the saved decoder.
  Index length() const { return length_; }

  /// Reads the next bytes.
  /// \throws std::invalid_argument if there are fewer
  void get(void* to, Index bytes) {
    if (bytes > static_cast<Index>(bytes_.size())) refuse_state("is truncated");
    if (bytes > 0) std::memcpy(to, bytes_.data(), static_cast<std::size_t>(bytes));
    bytes_ = bytes_.subspan(static_cast<std::size_t>(bytes));
  }

  /// The tokens of a near field, owned.
  template <class C>
  class Tokens {
   public:
    /// Reads them.
    /// \throws std::invalid_argument if they are truncated, or do not match the decoder's length
    Tokens(LinearStateReader& reader, const DecoderShape& shape) : first_(reader.get_number()) {
      const Index rows = reader.get_number();
      const Index length = reader.length();
      if (first_ < 0 || first_ > length || rows != length - first_) {
        reader.refuse_state("has a near field that does not end at its length");
      }
      // The last row and the next one each look back at `left_` keys, including their own.
      if (first_ > (std::max)(Index{0}, length - reader.left_)) {
        reader.refuse_state("lacks tokens of its near field");
      }
      keys_ = reader.get_rows<C>(shape, rows, shape.width);
      values_ = reader.get_rows<C>(shape, rows, shape.value_width);
      shape_ = {shape.batch, shape.key_heads, rows, shape.width};
      value_width_ = shape.value_width;
    }

    /// The tokens in the form a cache takes.
    CachedTokens<C> view() const {
      return {first_, View<const C>(keys_.data(), shape_),
              View<const C>(values_.data(), {shape_[0], shape_[1], shape_[2], value_width_})};
    }

   private:
    Index first_;
    Shape shape_{};
    Index value_width_ = 0;
    std::vector<C> keys_;
    std::vector<C> values_;
  };
  /// Reads the tokens of a near field.
  /// \throws std::invalid_argument if they are truncated, or do not match the decoder's length
  template <class C>
  Tokens<C> tokens(const DecoderShape& shape) {
    return Tokens<C>(*this, shape);
  }

  /// \throws std::invalid_argument if bytes are left
  void finish() const {
    if (!bytes_.empty()) refuse_state("has bytes after its end");
  }

 private:
  [[noreturn]] void refuse_state(const char* what) const {
    refuse(op_, std::string("state ") + what, "expected the output of `save` of such a decoder");
  }

  std::int64_t get_number() {
    std::int64_t number = 0;
    get(&number, sizeof(number));
    return number;
  }

  template <class C>
  std::vector<C> get_rows(const DecoderShape& shape, Index rows, Index width) {
    Index count = 0;
    Index bytes = 0;
    const bool fits = detail::multiply(shape.batch * shape.key_heads, rows, count) &&
                      detail::multiply(count, width, count) &&
                      detail::multiply(count, Index{sizeof(C)}, bytes);
    if (!fits || bytes > static_cast<Index>(bytes_.size())) refuse_state("is truncated");
    std::vector<C> numbers(static_cast<std::size_t>(count));
    get(numbers.data(), bytes);
    return numbers;
  }

  const char* op_;
  std::span<const std::byte> bytes_;
  Index left_;  // as in the header
  Index length_ = 0;
};

FOVEA_NAMESPACE_END
