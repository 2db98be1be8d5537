// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention of each row over a list of keys of its own (MATHS.md, sections 2 and 5): top-k
/// retrieval, routing, or any other choice of keys.
#pragma once

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/indexed/backward.hpp"
#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/softmax/options.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// out[b, h, i] = sum_j softmax_j(scale <q_i, k_j>) v_j over the keys j = indices[b, h, i, 0..K)
/// that are visible: before the batch's key length and, if it is causal, up to the row's position.
/// `IndexedInputs::indices` [B, Hq, Nq, K] has in each row keys that ascend strictly, and -1 behind
/// the last one; `sort_indices` brings others into that form. In packed sequences a row's keys
/// count from the first one of its own sequence. A row that sees no key is +0, and its lse -inf. A
/// NaN or infinity that is visible reaches the row; what is not visible changes no bit. The bits of
/// a row depend neither on threads, batch, heads, strides nor on K, beyond the keys that it sees.
/// There is no decoder: who chooses keys for new tokens calls `forward` with them, Nq = 1.
/// Cost: 2 (D + Dv) flops per visible pair, and as many loads as that: bound by the cache that K
/// and V of a head fit into. Memory O(threads (D + min(K, Nk))).
class IndexedAttention : public ForwardCalls<IndexedAttention>,
                         public BackwardCalls<IndexedAttention> {
 public:
  template <class T>
  using Inputs = IndexedInputs<T>;
  template <class T>
  using Saved = IndexedSaved<T>;
  template <class T>
  using Grads = IndexedGrads<T>;
  using Shape = IndexedShape;

  IndexedOptions options;

  explicit IndexedAttention(const IndexedOptions& chosen = {}) : options(chosen) {}

  static constexpr const char* name() { return "IndexedAttention"; }

  /// \throws std::invalid_argument naming operator, tensor, dimension, expected and got; of a list
  /// the first entry that is wrong. O(B Hq Nq K): every entry is looked at.
  template <class T>
  void check(const InputsOf<IndexedAttention, T>& inputs, const View<T>& out,
             const SavedOf<IndexedAttention, T>& saved = {}) const {
    check_tensors(inputs);
    check_outputs(name(), inputs, out, saved);
    check_indices(name(), inputs);
  }

  /// \throws std::invalid_argument as `check`, for everything that `backward` takes.
  template <class T>
  void check_backward(const InputsOf<IndexedAttention, T>& inputs, const View<const T>& out,
                      const SavedOf<IndexedAttention, T>& saved, const View<const T>& d_out,
                      const GradsOf<IndexedAttention, T>& grads) const {
    check_tensors(inputs);
    check_rows(name(), "out", inputs, out);
    check_rows(name(), "d_out", inputs, d_out);
    check_lse(name(), inputs, saved);
    check_grads(name(), inputs, out, saved, d_out, grads);
    check_indices(name(), inputs);
  }

  /// Bytes of scratch of `forward` with that many workers.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const IndexedShape& shape, Index workers = 1) const {
    return IndexedForward<T>::workspace_bytes(shape, places(shape), workers);
  }

  /// Bytes of scratch of `backward` with that many workers.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const IndexedShape& shape, Index workers = 1) const {
    const Index entries = shape.queries * places(shape);
    return IndexedBackward<T>::workspace_bytes(shape, places(shape), entries, workers);
  }

  /// (query, key) pairs of one query head that lists may name: all, or those that causal attention
  /// shows; the largest Index, if they are more. How many they do name is their matter.
  [[nodiscard]] Index visible_pairs(const IndexedShape& shape, Index /*head*/ = 0) const {
    const auto sequence = SequenceShape::of(shape.queries, shape.keys, options.alignment);
    return options.causal ? Causal{}.plan(sequence).visible_pairs()
                          : Dense{}.plan(sequence).visible_pairs();
  }

 private:
  friend class ForwardCalls<IndexedAttention>;
  friend class BackwardCalls<IndexedAttention>;

  /// The places of a list that may hold a key.
  static Index places(const IndexedShape& shape) {
    return (std::min)(shape.keys_per_row, shape.keys);
  }

  /// Options and inputs but the entries of lists.
  template <class T>
  void check_tensors(const Inputs<T>& inputs) const {
    check_softmax_options<Compute<T>>(name(), {.scale = options.scale});
    check_inputs(name(), inputs);
    check_packing(name(), inputs);
  }

  /// Gradients of the loss from d_out, its gradient with respect to out: exact derivatives of
  /// `forward` with these lists; 0 for what is not visible. Weights are recomputed from lse.
  /// Gradients of a key are sums over the rows that list it, in the order of heads and rows: the
  /// same bits for any number of threads. Cost: 2 (3 D + 2 Dv) flops per visible pair. Memory 16
  /// bytes and two numbers for each entry of the lists of some heads: as many as have 2 million
  /// entries, at least those of one key head.
  template <class T, class E>
  void run_backward(const InputsOf<IndexedAttention, T>& inputs, const View<const T>& out,
                    const SavedOf<IndexedAttention, T>& saved, const View<const T>& d_out,
                    const GradsOf<IndexedAttention, T>& grads, E&& executor) const {
    const TensorLists lists(inputs.indices, inputs.k.rows(), options);
    IndexedBackward<T>(inputs, lists, out, saved, d_out, grads).run(executor);
  }

  template <class T, class E>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved, E&& executor) const {
    const TensorLists lists(inputs.indices, inputs.k.rows(), options);
    IndexedForward<T>(inputs, lists, out, saved).run(executor);
  }
};

FOVEA_NAMESPACE_END
