// SPDX-License-Identifier: MIT
/// \file
/// FSAT attention (Zhuang et al. 2022, section 4; MATHS.md, section 6): each query attends to the
/// keys that have predicted it.
#pragma once

#include <algorithm>
#include <concepts>

#include "fovea/attention/call/checked_calls.hpp"
#include "fovea/attention/fsat/options.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/pair_count.hpp"

FOVEA_NAMESPACE_BEGIN

/// FSAT attention: out[b, h, i] = sum_{j in N_i} softmax_{j in N_i}(scale <q_i, k_j>) conf_ij v_j
/// (eq. 7). N_i are the keys j that have an edge from query i: floor(Ibar[b, h, j, m]) = i for one
/// of the predicted dominant indices Ibar of key j, which are an input (eq. 9), or, in training,
/// one of its random indices is i. The confidence is conf_ij = N(i; Ibar, sigma^2) (eqs. 8 and 10).
/// The weights are not normalised again after the confidences. Where two slots m have the same
/// edge, the larger confidence counts. A query without an edge gives +0, and its lse is -infinity.
/// See FsatOptions, FsatGraph and MATHS.md, section 6.
///
/// Inputs: q, k and v, whose queries and keys are the same tokens (Nq = Nk = L); dominant [B, Hq,
/// L, M]; and optionally random [B, Hq, L, M], key_lengths or cu_seqlens_q. With a key length n the
/// first n tokens have the bits of the sequence of n tokens alone; queries beyond it are +0, and
/// dominant indices beyond it are not read. Dominant indices are at least 0; those of Lmax and more
/// mean the last token of Lmax. Random edges, unless the input `random` names their queries, are
/// drawn by the number of the sequence, the head, the key and the slot: they are the same for float
/// and double, for any number of threads and for every instruction set.
///
/// The operator is not causal, since position i of the cross mixes tokens up to 2 i + 1: a causal
/// option or a decoder does not compile.
///
/// A NaN or infinity of a key reaches the queries that have an edge to it, and no others. The bits
/// of a row do not depend on threads, batch or strides, nor on rows and keys without an edge to it.
///
/// Cost: 2 (D + Dv) flops and D + Dv loads for each edge, with at most M edges for each key (2 M in
/// training), and two passes over dominant. Memory: O(B H L M) for the graph of all heads, which
/// takes 8 bytes and one number for each slot (twice that in training) and 8 bytes for each query;
/// there is no L x L matrix.
class FsatAttention : public CheckedCalls<FsatAttention> {
 public:
  /// What the operator reads, for tensors of T.
  template <class T>
  using Inputs = FsatInputs<T>;
  /// What the forward pass saves: lse, if it has a tensor.
  template <class T>
  using Saved = FsatSaved<T>;
  /// The gradients that the backward pass writes, for tensors of T.
  template <class T>
  using Grads = FsatGrads<T>;
  /// The sizes of a call.
  using Shape = FsatShape;

  FsatOptions options;  ///< checked at every call

  /// Has the default options; max_length must still be set.
  FsatAttention() = default;
  /// Holds these options. They are checked when the operator is called.
  explicit FsatAttention(const FsatOptions& chosen) : options(chosen) {}

  /// The name that stands in error messages, tables and benchmarks.
  static constexpr const char* name() { return "FsatAttention"; }

  /// Bytes of scratch memory that `forward` takes with that many workers.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const FsatShape& shape, Index workers = 1) const;

  /// Bytes of scratch memory that `backward` takes with that many workers for all gradients.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const FsatShape& shape, Index workers = 1) const;

  /// An upper bound of the (query, key) pairs of one query head that have an edge: one for each
  /// slot, and two in training. How many there are depends on the dominant indices.
  [[nodiscard]] Index visible_pairs(const FsatShape& shape, Index /*head*/ = 0) const {
    const Index edges = add_pairs(0, shape.dominants, options.edges_per_slot());
    return add_pairs(0, shape.keys, (std::min)(edges, shape.queries));
  }

  /// Writes the edges that a call with these inputs uses: for slot e of key j the query that it has
  /// an edge from, or -1 for keys from the key length on. The slots of predicted edges come first,
  /// those of random edges behind them. Two slots of a key may name one query; the edge is then
  /// there once. \param edges [B, Hq, L, E] with E = M, or 2 M if options.edges is `both` \throws
  /// std::invalid_argument as `check` does; std::bad_alloc
  template <class T, class E = Serial>
  void edges(const Inputs<T>& inputs, const View<Index>& edges, E&& executor = {}) const {
    check_edges(inputs, edges);
    write_edges(inputs, edges, for_call(executor));
  }

  /// There is no decoder: a call does not compile, and says why.
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

  /// Writes the gradients of the loss, of which d_out is the gradient with respect to out. Those of
  /// q, k and v are exact derivatives of `forward` with the same edges: the edges are built again,
  /// and where an edge leads is not differentiated. The gradient of Ibar flows through the
  /// confidences alone: it is the sum over the edges of a slot of g conf (I - Ibar) / sigma^2,
  /// where g is the gradient of the confidence, or min(0, g) if that is truncated (section 4.2.4,
  /// the default).
  /// Cost: building the graph again, and 2 (3 D + 2 Dv) flops for each edge. Memory: 24 bytes and
  /// three numbers for each edge that the slots of some heads may have, or 32 bytes and four
  /// numbers with the gradient of dominant. The heads at work at once are those that have 2 million
  /// edges together, and at least those of one key head.
  template <class T>
  void run_backward(const InputsOf<FsatAttention, T>& inputs, const View<const T>& out,
                    const SavedOf<FsatAttention, T>& saved, const View<const T>& d_out,
                    const GradsOf<FsatAttention, T>& grads, const ExecutorRef& executor) const;

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/fsat.inl.hpp"
#endif
