// SPDX-License-Identifier: MIT
/// \file
/// Some columns of W2 and b2 of the dense Synthesizer as keys, where not all of them are wanted.
#pragma once

#include "fovea/attention/synthesizer/hidden_layer.hpp"
#include "fovea/attention/synthesizer/softmax.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Keys that are columns of W2 and b2, in memory of its own.
template <class T>
class KeyColumns {
 public:
  KeyColumns() = default;

  /// Takes memory for so many keys.
  /// \param w2, b2 checked; none if there is no key   \param heads Hk   \param hidden M
  /// \throws std::bad_alloc
  KeyColumns(const View<const T>& w2, const View<const T>& b2, Index heads, Index hidden,
             Index count)
      : w2_(w2),
        b2_(b2),
        heads_(heads),
        hidden_(hidden),
        count_(count),
        memory_(w2.batch() * heads * count, row() * Index{sizeof(T)}) {}

  /// Bytes of the memory.
  Index size_bytes() const { return memory_.size_bytes(); }

  /// Makes the keys from `at` on of the columns [first, first + count).
  void put(Index at, Index first, Index count) {
    const View<T> to = made();
    if (to.data() == nullptr) return;
    for (Index b = 0; b < w2_.batch(); ++b) {
      for (Index h = 0; h < heads_; ++h) {
        HiddenLayer<T>::put_keys(w2_, b2_, b, h, first, count, to, at);
      }
    }
  }

  /// The keys of `batch` sequences, [batch, Hk, count, M + 1].
  View<const T> keys(Index batch) { return for_batch<T>(made(), batch); }

 private:
  Index row() const { return HiddenLayer<T>::row_of(hidden_); }

  View<T> made() {
    return {size_bytes() == 0 ? nullptr : memory_.template data<T>(),
            {w2_.batch(), heads_, count_, hidden_ + 1},
            {heads_ * count_ * row(), count_ * row(), row(), 1}};
  }

  View<const T> w2_;
  View<const T> b2_;
  Index heads_ = 0;
  Index hidden_ = 0;
  Index count_ = 0;
  Workspace memory_;
};

}  // namespace detail

FOVEA_NAMESPACE_END
