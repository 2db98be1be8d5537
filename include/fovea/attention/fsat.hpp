// SPDX-License-Identifier: MIT
/// \file
/// FSAT attention (Zhuang et al. 2022, section 4; MATHS.md, section 6): each query attends to the
/// keys that predicted it.
#pragma once

#include <algorithm>
#include <concepts>

#include "fovea/attention/call/checked_calls.hpp"
#include "fovea/attention/fsat/options.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/pair_count.hpp"

FOVEA_NAMESPACE_BEGIN

/// FSAT attention: out[b, h, i] = sum_{j in N_i} softmax_{j in N_i}(scale <q_i, k_j>) conf_ij v_j
/// (eq. 7). N_i are the keys j with an edge from query i: floor(Ibar[b, h, j, m]) = i for one of
/// key j's predicted dominant indices Ibar, which are an input (eq. 9), or, in training, one of its
/// random indices is i. The confidence is conf_ij = N(i; Ibar, sigma^2) (eqs. 8 and 10). The
/// weights are not renormalised after multiplying by confidences. If two slots m have the same
/// edge, the larger confidence counts. A query without an edge gives +0, and its lse is -infinity.
/// See FsatOptions, FsatGraph and MATHS.md, section 6.
///
/// Inputs: q, k and v, whose queries and keys are the same tokens (Nq = Nk = L); dominant [B, Hq,
/// L, M]; and optionally random [B, Hq, L, M], key_lengths or cu_seqlens_q. With a key length n the
/// first n tokens have the same bits as a sequence of n tokens; queries beyond it are +0, and
/// dominant indices beyond it are not read. Dominant indices are at least 0; Lmax and above mean
/// the last token of Lmax. Random edges, unless the input `random` gives their queries, are drawn
/// from the sequence number, head, key and slot: they are the same for float and double, for any
/// number of threads and for every instruction set.
///
/// The operator is not causal, since position i of the cross mixes tokens up to 2 i + 1: a causal
/// option or a decoder does not compile.
///
/// A NaN or infinity in a key reaches the queries with an edge to it, and no others. The bits of a
/// row do not depend on threads, batch or strides, nor on rows and keys without an edge to it.
///
/// Cost: 2 (D + Dv) flops and D + Dv loads for each edge, with at most M edges for each key (2 M in
/// training), and two passes over dominant. Memory: O(B H L M) for the graph of all heads: 8 bytes
/// and one number for each slot (twice that in training) and 8 bytes for each query; no L x L
/// matrix.
class FsatAttention
    : public CheckedCalls<FsatAttention>,
      public OperatorTypes<FsatInputs, FsatSaved, FsatGrads, FsatShape, FsatOptions> {
 public:
  using OperatorTypes::OperatorTypes;

  /// The operator's name.
  static constexpr const char* name() { return "FsatAttention"; }

  /// An upper bound of the (query, key) pairs of one query head that have an edge: one for each
  /// slot, and two in training. The actual number depends on the dominant indices.
  [[nodiscard]] Index attended_pairs(const FsatShape& shape, Index /*head*/ = 0) const {
    const Index edges = add_pairs(0, shape.dominants, options.edges_per_slot());
    return add_pairs(0, shape.keys, (std::min)(edges, shape.queries));
  }

  /// Writes the edges that a call with these inputs uses: for slot e of key j the query its edge
  /// comes from, or -1 for keys from the key length on. Slots of predicted edges come first, then
  /// those of random edges. Two slots of a key may name the same query, which is a single edge.
  /// \param edges [B, Hq, L, E] with E = M, or 2 M if options.edges is `both`
  /// \throws std::invalid_argument as `check` does; std::bad_alloc
  template <class T, class E = Serial>
  void edges(const Inputs<T>& inputs, const View<Index>& edges, E&& executor = {}) const {
    check_edges(inputs, edges);
    write_edges(inputs, edges, for_call(executor));
  }

  /// There is no decoder: a call fails to compile with a message.
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "FsatAttention has no decoder: it is not causal, since position i of the hidden "
                  "state cross mixes tokens up to 2 i + 1");
  }

 private:
  friend class ForwardCalls<FsatAttention>;
  friend class BackwardCalls<FsatAttention>;
  friend class CheckedCalls<FsatAttention>;

  template <class T>
  void check_read(const Inputs<T>& inputs) const;
  /// Checks every dominant and random index, and names the first wrong one. Cost: O(B Hq L M).
  template <class T>
  void check_values(const Inputs<T>& inputs) const;
  template <class T>
  void check_edges(const Inputs<T>& inputs, const View<Index>& edges) const;
  template <class T>
  void write_edges(const Inputs<T>& inputs, const View<Index>& edges,
                   const ExecutorRef& executor) const;

  /// Writes the gradients of the loss, given d_out, its gradient with respect to out. Those of q, k
  /// and v are exact derivatives of `forward` with the same edges: the edges are rebuilt, and their
  /// choice is not differentiated. The gradient of Ibar flows only through the confidences: it is
  /// the sum over the edges of a slot of g conf (I - Ibar) / sigma^2, where g is the gradient of
  /// the confidence, or min(0, g) if truncated (section 4.2.4, the default).
  /// Cost: rebuilding the graph, and 2 (3 D + 2 Dv) flops for each edge. Memory: 16 bytes and three
  /// numbers for each edge that the slots of some heads may have, or 24 bytes and four numbers with
  /// the gradient of dominant; with several threads up to 8 bytes more. Four key heads are
  /// processed at once for each thread, up to 2 million edges, or one with a single thread.
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
#include "fovea/attention/fsat.inl.hpp"
#endif
