// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention of each row over its own list of keys (MATHS.md, sections 2 and 5): top-k
/// retrieval, routing, or any other choice of keys.
#pragma once

#include <algorithm>
#include <concepts>
#include <vector>

#include "fovea/attention/call/checked_calls.hpp"
#include "fovea/attention/indexed/options.hpp"
#include "fovea/core/tensor_check.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Sorts the rows of lists [B, H, N, K] in place, into the form that IndexedAttention reads:
/// ascending, with -1 after the last key. In the input -1 may be anywhere. Duplicate keys are kept,
/// and refused by the operator. Cost: O(B H N K log K) comparisons.
/// \throws std::invalid_argument if elements share memory; std::bad_alloc
inline void sort_indices(const View<Index>& indices) {
  detail::check_distinct("sort_indices", "indices", indices);
  const auto before = [](Index a, Index b) {  // -1 comes last
    return static_cast<std::size_t>(a) < static_cast<std::size_t>(b);
  };
  std::vector<Index> row(static_cast<std::size_t>(indices.width()));
  for (Index b = 0; b < indices.batch(); ++b) {
    for (Index h = 0; h < indices.heads(); ++h) {
      for (Index n = 0; n < indices.rows(); ++n) {
        for (std::size_t i = 0; i < row.size(); ++i) row[i] = indices(b, h, n, Index(i));
        std::sort(row.begin(), row.end(), before);
        for (std::size_t i = 0; i < row.size(); ++i) indices(b, h, n, Index(i)) = row[i];
      }
    }
  }
}

/// Attention over lists of keys: out[b, h, i] = sum_j softmax_j(scale <q_i, k_j>) v_j over those
/// keys j = indices[b, h, i, 0..K) that are visible: before the key length of the batch entry and,
/// if the operator is causal, up to the row's position.
/// `IndexedInputs::indices` [B, Hq, Nq, K] holds strictly ascending keys in each row, and -1 after
/// the last one; `sort_indices` brings other lists into that form. In packed sequences a row's keys
/// count from the first key of its own sequence. A row that sees no key is +0, and its lse is
/// -infinity. A visible NaN or infinity reaches the row; invisible ones change no bit. The bits of
/// a row do not depend on threads, batch, heads or strides, nor on K beyond the keys that the row
/// sees.
/// For new tokens, choose their keys and call `forward` with Nq = 1.
/// Cost: 2 (D + Dv) flops for each visible pair and as many loads, so the speed depends on which
/// cache holds a head's K and V. Memory: O(threads (D + min(K, Nk))); if a head's K and V are large
/// and read often, also copies of up to 8 MiB of them, and intermediate results of up to 2.5
/// million entries, two numbers each. (`fovea/attention/indexed/phases.hpp`; not for 16-bit
/// tensors, nor beyond 2^17 keys, though `workspace_bytes` counts it there.)
class IndexedAttention : public CheckedCalls<IndexedAttention>,
                         public OperatorTypes<IndexedInputs, IndexedSaved, IndexedGrads,
                                              IndexedShape, IndexedOptions> {
 public:
  using OperatorTypes::OperatorTypes;

  /// The operator's name.
  static constexpr const char* name() { return "IndexedAttention"; }

  /// An upper bound of the (query, key) pairs of one query head that lists can name: all pairs, or
  /// the causal ones; the largest Index if there are more. The actual number depends on the lists.
  [[nodiscard]] Index attended_pairs(const IndexedShape& shape, Index /*head*/ = 0) const {
    const auto sequence = SequenceShape::of(shape.queries, shape.keys, options.alignment);
    return options.causal ? Causal{}.plan(sequence).attended_pairs()
                          : Dense{}.plan(sequence).attended_pairs();
  }

  /// There is no decoder; calling this is a compile error.
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "IndexedAttention has no decoder: choose the keys of the new tokens, and call "
                  "forward with Nq = 1");
  }

 private:
  friend class ForwardCalls<IndexedAttention>;
  friend class BackwardCalls<IndexedAttention>;
  friend class CheckedCalls<IndexedAttention>;

  /// Checks the options and the inputs, except the lists.
  template <class T>
  void check_read(const Inputs<T>& inputs) const;
  /// Checks every entry of the lists, and names the first wrong one. Cost: O(B Hq Nq K).
  template <class T>
  void check_values(const Inputs<T>& inputs) const;

  /// Writes the gradients of the loss, given d_out, its gradient with respect to out: the exact
  /// derivatives of `forward` with these lists, and 0 for what is not visible. The weights are
  /// recomputed from lse. A key's gradient is a sum over the rows that list it, in the order of
  /// heads and rows, so it has the same bits for any number of threads.
  /// Cost: 2 (3 D + 2 Dv) flops for each visible pair. Memory: 8 bytes and two numbers for each
  /// list entry of some heads, and 8 bytes for each of their keys; with several threads up to 8
  /// bytes more for each entry. As many key heads are processed at once as there are threads, up to
  /// 2 million entries.
  template <class T>
  void run_backward(const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
                    const View<const T>& d_out, const Grads<T>& grads,
                    const ExecutorRef& executor) const;

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/indexed.inl.hpp"
#endif
