// SPDX-License-Identifier: MIT
/// \file
/// FSAT attention (Zhuang et al. 2022, section 4): each query attends to the keys that have
/// predicted it.
#pragma once

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/fsat/check.hpp"
#include "fovea/attention/fsat/graph_lists.hpp"
#include "fovea/attention/indexed/backward.hpp"

FOVEA_NAMESPACE_BEGIN

/// out[b, h, i] = sum_{j in N_i} softmax_{j in N_i}(scale <q_i, k_j>) conf_ij v_j (eq. 7), where
/// N_i are the keys j with an edge from query i: one of their predicted dominant indices
/// Ibar[b, h, j, m] (eq. 9), an input, is floor(Ibar) = i, or in training a random index is i.
/// conf_ij = N(i; Ibar, sigma^2) (eqs. 8 and 10). Weights are not normalised again after the
/// confidences. Of an edge that two slots m have, the larger confidence counts. A query without an
/// edge is +0, and its lse -inf. See FsatOptions, FsatGraph and MATHS.md, section 6.
///
/// Inputs: q, k, v (queries and keys are the same tokens: Nq = Nk = L), dominant [B, Hq, L, M], and
/// if given key_lengths or cu_seqlens_q. With a key length n the first n tokens have the bits of
/// the sequence of n tokens alone; queries beyond it are +0, and dominant indices beyond it are not
/// read. Dominant indices are at least 0; those of Lmax and more mean the last token of Lmax.
/// Random edges draw by the number of the sequence, the head, key and slot: the same for float and
/// double, any threads and instruction set.
///
/// Not causal: position i of the cross mixes tokens up to 2 i + 1. There is no causal option and no
/// decoder; neither compiles.
///
/// A NaN or infinity of a key reaches the queries that have an edge to it, and no others. The bits
/// of a row depend on no thread, batch, stride, nor on rows and keys without an edge to it.
/// Cost: 2 (D + Dv) flops and D + Dv loads per edge, at most M edges per key (training: 2 M), and
/// two passes over dominant. Memory O(B H L M) for the graph of all heads: per slot 8 bytes and a
/// number, per query 8 bytes (both twice as often in training: FsatGraph); no L x L.
class FsatAttention : public ForwardCalls<FsatAttention>, public BackwardCalls<FsatAttention> {
 public:
  template <class T>
  using Inputs = FsatInputs<T>;
  template <class T>
  using Saved = FsatSaved<T>;
  template <class T>
  using Grads = FsatGrads<T>;
  using Shape = FsatShape;

  FsatOptions options;

  FsatAttention() = default;
  explicit FsatAttention(const FsatOptions& chosen) : options(chosen) {}

  static constexpr const char* name() { return "FsatAttention"; }

  /// \throws std::invalid_argument naming operator, tensor, dimension, expected and got; of the
  /// dominant indices the first entry that is wrong. O(B Hq L M): every entry is looked at.
  template <class T>
  void check(const InputsOf<FsatAttention, T>& inputs, const View<T>& out,
             const SavedOf<FsatAttention, T>& saved = {}) const {
    check_fsat_inputs(name(), options, inputs);
    check_outputs(name(), inputs, out, saved);
    check_dominant(name(), inputs);
  }

  /// \throws std::invalid_argument as `check`, for everything that `backward` takes.
  template <class T>
  void check_backward(const InputsOf<FsatAttention, T>& inputs, const View<const T>& out,
                      const SavedOf<FsatAttention, T>& saved, const View<const T>& d_out,
                      const GradsOf<FsatAttention, T>& grads) const {
    check_fsat_inputs(name(), options, inputs);
    check_rows(name(), "out", inputs, out);
    check_rows(name(), "d_out", inputs, d_out);
    check_lse(name(), inputs, saved);
    check_grads(name(), inputs, out, saved, d_out, grads);
    check_dominant(name(), inputs);
  }

  /// Bytes of scratch of `forward` with that many workers.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const FsatShape& shape, Index workers = 1) const {
    using C = Compute<T>;
    return FsatGraph<C>::size_bytes(options, shape.keys, shape.dominants, 1,
                                    shape.batch * shape.query_heads, workers, false) +
           IndexedForward<T, FsatLists<C>>::workspace_bytes(shape, shape.keys, workers);
  }

  /// Bytes of scratch of `backward` with that many workers, all gradients.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const FsatShape& shape, Index workers = 1) const {
    using Backward = IndexedBackward<T, FsatLists<T>>;
    const Index edges = shape.keys * shape.dominants * FsatGraph<T>::edges_per_slot(options);
    return FsatGraph<T>::size_bytes(options, shape.keys, shape.dominants, 1,
                                    Backward::heads_at_once(shape, edges), workers, true) +
           Backward::workspace_bytes(shape, shape.keys, edges, workers);
  }

  /// (query, key) pairs of one query head that may have an edge: one for each slot, in training
  /// two. How many there are is the matter of the dominant indices.
  [[nodiscard]] Index visible_pairs(const FsatShape& shape, Index /*head*/ = 0) const {
    const Index edges = shape.dominants * FsatGraph<float>::edges_per_slot(options);
    return add_pairs(0, shape.keys, (std::min)(edges, shape.queries));
  }

  /// There is none. \tparam T as of other operators
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "FsatAttention has no decoder: it is not causal, since position i of the hidden "
                  "state cross mixes tokens up to 2 i + 1");
  }

 private:
  friend class ForwardCalls<FsatAttention>;
  friend class BackwardCalls<FsatAttention>;

  template <class T>
  static Index sequences_of_a_row(const Inputs<T>& inputs) {
    const Sequences<T> sequences(inputs);
    return sequences.packed() ? sequences.count() : 1;
  }

  /// Gradients of the loss from d_out, its gradient with respect to out. Those of q, k and v are
  /// exact derivatives of `forward` with the same edges: these are built again, and where an edge
  /// leads is not differentiated. That of Ibar is by the confidences alone, sum over the edges of
  /// the slot of g conf (I - Ibar) / sigma^2, with g the gradient of the confidence, or min(0, g)
  /// where it is truncated (section 4.2.4, the default). Cost: the graph again, and 2 (3 D + 2 Dv)
  /// flops per edge. Memory: 24 bytes and three numbers (with the gradient of dominant 32 and four)
  /// for each edge that the slots of some heads may have: as many heads as have 2 million, at least
  /// those of one key head.
  template <class T, class E>
  void run_backward(const InputsOf<FsatAttention, T>& inputs, const View<const T>& out,
                    const SavedOf<FsatAttention, T>& saved, const View<const T>& d_out,
                    const GradsOf<FsatAttention, T>& grads, E&& executor) const {
    FsatGraph<T> graph(inputs.dominant, options, sequences_of_a_row(inputs),
                       !grads.dominant.is_none());
    const FsatLists<T> lists(graph, options.scale, inputs.k.rows(), grads.dominant);
    IndexedBackward<T, FsatLists<T>>(detail::inputs_as<IndexedInputs<T>>(inputs), lists, out, saved,
                                     d_out, {grads.q, grads.k, grads.v})
        .run(executor);
  }

  template <class T, class E>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved, E&& executor) const {
    using C = Compute<T>;
    const Sequences<T> sequences(inputs);
    const Index heads = inputs.q.heads();
    const Index graphs = sequences.count() * heads;
    FsatGraph<C> graph(inputs.dominant, options, sequences_of_a_row(inputs), false);
    graph.take_memory(inputs.q.batch() * heads, worker_count(executor, graphs));
    const FsatLists<C> lists(graph, options.scale, inputs.k.rows());
    IndexedForward<T, FsatLists<C>> attention(detail::inputs_as<IndexedInputs<T>>(inputs), lists,
                                              out, saved);
    attention.take_scratch(executor);
    for_each_task(executor, graphs, [&](Index task, Index worker) {
      const Sequence s = sequences[task / heads];
      graph.build(s, task % heads, s.batch * heads + task % heads, worker);
    });
    attention.compute(executor);
  }
};

FOVEA_NAMESPACE_END
