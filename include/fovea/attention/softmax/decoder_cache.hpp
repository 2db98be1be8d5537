// SPDX-License-Identifier: MIT
/// \file
/// The tokens that a decoder keeps: all of them, or the last ones and all tokens' summary columns.
#pragma once

#include <algorithm>
#include <utility>

#include "fovea/attention/call/key_value_cache.hpp"
#include "fovea/attention/softmax/call.hpp"
#include "fovea/attention/softmax/retained_keys.hpp"
#include "fovea/attention/softmax/summary_cache.hpp"

FOVEA_NAMESPACE_BEGIN

/// The tokens that the heads of a decoder may still see.
template <class T>
class DecoderCache {
 public:
  /// An empty cache; allocates nothing yet.
  /// \param scope what the heads may still see
  DecoderCache(const DecoderShape& shape, RetainedKeys scope)
      : scope_(std::move(scope)),
        recent_({shape.batch, shape.key_heads, shape.width, shape.value_width,
                 kept(scope_, shape.rollback_tokens)}),
        summary_(summary_shape(scope_, shape), shape.width, shape.value_width) {}

  /// The tokens that the heads may still see.
  const RetainedKeys& scope() const { return scope_; }
  /// The number of tokens so far.
  Index length() const { return recent_.length(); }
  /// Bytes of memory for keys and values.
  Index memory_bytes() const { return recent_.memory_bytes() + summary_.memory_bytes(); }

  /// Whether only the last tokens are stored, besides the summary.
  bool is_ring() const { return recent_.shape().kept != KeyValueCache<T>::kAll; }
  /// The first stored position of the recent tokens: all from here to the length are.
  Index first_held() const { return recent_.first_held(); }
  /// Whether that many recent tokens can be contiguous.
  bool holds(Index tokens) const { return tokens <= recent_.shape().kept; }

  /// The keys of the recent tokens at positions [first, first + count).
  /// \pre holds(count)
  View<const T> keys(Index first, Index count) const { return recent_.keys(first, count); }
  /// The values of these tokens.
  /// \pre holds(count)
  View<const T> values(Index first, Index count) const { return recent_.values(first, count); }

  /// Makes a head's arguments read the summary.
  /// \param args the arguments of one of that key head's query heads
  void place_summary(Index b, Index key_head, HeadArgs<T>& args) const {
    args.k.data = summary_.keys(b, key_head);
    args.k.row = args.width;
    args.v.data = summary_.values(b, key_head);
    args.v.row = args.value_width;
    args.k.column = args.v.column = 1;
    args.key_rows = summary_.key_rows(key_head);
  }

  /// Makes room for that many tokens in all.
  /// \throws std::bad_alloc, with no token changed
  void make_room(Index tokens) {
    summary_.make_room(length(), tokens);
    recent_.make_room(tokens);
  }

  /// Makes room for that many tokens in all, allocating no more than that.
  /// \throws std::bad_alloc, with no token changed
  void reserve(Index tokens) {
    summary_.reserve(length(), tokens);
    recent_.reserve(tokens);
  }

  /// Appends the tokens of k and v.
  /// \pre there is room for them
  void append(const View<const T>& k, const View<const T>& v) noexcept {
    summary_.append(k, v, 0, length(), k.rows());
    recent_.append(k, v, 0, k.rows());
  }

  /// Drops the tokens from position `length` on.
  /// \pre length <= length()
  void truncate(Index length) noexcept { recent_.truncate(length); }

  /// The recent tokens.
  /// \pre there is no summary
  CachedTokens<T> held() const { return recent_.held(); }
  /// Replaces the recent tokens by these.
  /// \throws std::bad_alloc, with nothing changed
  /// \pre there is no summary
  void restart(const CachedTokens<T>& held) { recent_.restart(held); }

  /// A copy, with memory for just the stored tokens.
  /// \throws std::bad_alloc
  DecoderCache copy() const { return {scope_, recent_.copy(), summary_.copy(length())}; }

 private:
  DecoderCache(const RetainedKeys& scope, KeyValueCache<T> recent, SummaryCache<T> summary)
      : scope_(scope), recent_(std::move(recent)), summary_(std::move(summary)) {}

  /// The number of last tokens to keep. If bounded, it is what one query sees and some more, for
  /// steps with several queries.
  static Index kept(const RetainedKeys& scope, Index rollback_tokens) {
    const auto [before, after] = scope.receptive_field();
    if (!scope.is_bounded() || rollback_tokens >= kFarPosition) return KeyValueCache<T>::kAll;
    return before + (after < kFarPosition ? after : 0) + 1 +
           std::clamp<Index>(before, 64, kMaxBlockRows) + rollback_tokens;
  }

  static SummaryShape summary_shape(const RetainedKeys& scope, const DecoderShape& shape) {
    SummaryShape made{shape.batch, shape.key_heads, scope.stride(), scope.columns(), {}};
    for (Index h = 0; h < shape.key_heads; ++h) made.first.push_back(scope.first_column(h));
    return made;
  }

  RetainedKeys scope_;
  KeyValueCache<T> recent_;
  SummaryCache<T> summary_;
};

FOVEA_NAMESPACE_END
