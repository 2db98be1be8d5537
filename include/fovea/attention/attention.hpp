// SPDX-License-Identifier: MIT
/// \file
/// What every operator takes and gives, the concept Attention, and `attend`, which returns a new
/// tensor.
#pragma once

#include <concepts>
#include <span>
#include <utility>

#include "fovea/core/executor.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

/// The tensors that an operator reads. Beyond q, k and v all are optional, and an operator refuses
/// what it has no use for. Numbers that are not q, k or v are of the type of the arithmetic,
/// `Compute<T>`: float for tensors of 16 bits.
template <class T>
struct Inputs {
  View<const T> q;  ///< [B, Hq, Nq, D]
  /// [B, Hk, Nk, D], Hk divides Hq: query head h reads key head h / (Hq / Hk)
  View<const T> k = {};
  View<const T> v = {};  ///< [B, Hk, Nk, Dv]
  /// [B]: batch b has the keys [0, key_lengths[b]); empty: all Nk keys.
  std::span<const Index> key_lengths = {};
  /// [S + 1] ascending from 0 to Nq: B = 1, and sequence s has the query rows
  /// [cu_seqlens_q[s], cu_seqlens_q[s + 1]); empty: not packed.
  std::span<const Index> cu_seqlens_q = {};
  /// [S + 1], the same for the rows of k and v; empty: cu_seqlens_q.
  std::span<const Index> cu_seqlens_k = {};
  /// [B, Hq, Nq, Nk], or 1 instead of any of them: added to the logits; -infinity hides the pair.
  View<const Compute<T>> bias = {};
  /// [B, Hq, Nq, Nk], or 1 instead of any of them: false hides the pair.
  View<const bool> mask = {};
  /// [Hq]: slope |i - j| is taken from the logits (ALiBi; Press, Smith and Lewis 2022).
  std::span<const Compute<T>> alibi_slopes = {};
  /// [Hq]: one more logit per row that has no value: it takes probability, and counts in lse.
  std::span<const Compute<T>> sink = {};
  /// [B, Hk, Nk, 1]: the rate at which the delta rule writes a token.
  View<const Compute<T>> beta = {};
  /// [1, Hq, 1, Dv], or 1 instead of Hq or Dv: the near field of FMM attention has the weight
  /// sigmoid(near_logits), its far field sigmoid(far_logits); 1 for what is not given.
  View<const Compute<T>> near_logits = {};
  View<const Compute<T>> far_logits = {};
  /// [B, Hq, Nq, K]: the keys of each row, ascending, -1 behind the last one.
  View<const Index> indices = {};
  /// [B, 1, Nq, d] and [B, 1, Nk, d]: queries and keys of the sketch that chooses keys.
  View<const Compute<T>> sketch_q = {};
  View<const Compute<T>> sketch_k = {};
  /// [B, Hq, Nq, Nk] in (0, 1): instead of the draws that the choice makes of its seed.
  View<const Compute<T>> draws = {};
  /// [B, Hq, Nk, M]: the queries that each key is most likely to be attended by, as real numbers
  /// (Ibar of FSAT, eq. 9).
  View<const Compute<T>> dominant = {};
};

/// What a forward pass writes beside the output, each only if it is given.
template <class T>
struct Saved {
  /// [B, Hq, Nq, 1]: natural logarithm of the row's sum of exp(logit); -inf if it sees no key. Its
  /// rounding costs the gradients no digits, however large it is.
  View<Compute<T>> lse = {};
  /// [B, Hq, Nq, K]: the keys that an operator chose for each row, ascending, -1 behind the last.
  View<Index> indices = {};
};

/// The gradients that a backward pass writes, each only if it is given: those of the loss with
/// respect to the tensors of `Inputs`, in their shapes.
template <class T>
struct Grads {
  View<T> q = {};     ///< [B, Hq, Nq, D]
  View<T> k = {};     ///< [B, Hk, Nk, D]
  View<T> v = {};     ///< [B, Hk, Nk, Dv]
  View<T> bias = {};  ///< the shape of bias: where that is 1, the sum over what it was broadcast to
  std::span<T> sink = {};    ///< [Hq]
  View<T> beta = {};         ///< [B, Hk, Nk, 1]
  View<T> near_logits = {};  ///< the shape of near_logits
  View<T> far_logits = {};   ///< the shape of far_logits
  View<T> dominant = {};     ///< [B, Hq, Nk, M]
};

/// The sizes of one call.
struct AttentionShape {
  Index batch = 1;
  Index query_heads = 1;
  Index key_heads = 1;
  Index queries = 0;
  Index keys = 0;
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
};

/// The sizes of one call from its tensors, unchecked.
template <class T>
AttentionShape shape_of(const Inputs<T>& inputs) {
  return {inputs.q.batch(), inputs.q.heads(), inputs.k.heads(), inputs.q.rows(),
          inputs.k.rows(),  inputs.q.width(), inputs.v.width()};
}

/// An attention operator for the scalar T: a small value that holds its options.
template <class Op, class T>
concept Attention = std::copyable<Op> &&
    requires(const Op op, const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
             const AttentionShape& shape, Serial& executor) {
  /// the name that stands in messages, tables and benchmarks
  { Op::name() } -> std::convertible_to<const char*>;
  /// throws what `forward` would throw, and does nothing else
  op.check(inputs, out, saved);
  /// computes out, and what saved asks for
  op.forward(inputs, out, saved, executor);
  /// bytes of scratch that `forward` takes with that many workers
  { op.template workspace_bytes<T>(shape, 1) } -> std::same_as<Index>;
  /// (query, key) pairs of a query head that are visible, without key lengths
  { op.visible_pairs(shape, Index{0}) } -> std::same_as<Index>;
};

/// An attention operator that has a backward pass.
template <class Op, class T>
concept DifferentiableAttention = Attention<Op, T> &&
    requires(const Op op, const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
             const Grads<T>& grads, Serial& executor) {
  /// throws what `backward` would throw, and does nothing else
  op.check_backward(inputs, out, saved, out, grads);
  /// computes grads from d_out, the gradient of the loss with respect to out
  op.backward(inputs, out, saved, out, grads, executor);
};

/// The sizes of a decoder.
struct DecoderShape {
  Index batch = 1;
  Index query_heads = 1;
  Index key_heads = 1;    ///< divides query_heads
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  Index reserve = 0;      ///< tokens to take memory for at once
  /// Under a window, how many tokens can be rolled back at least.
  Index rollback_tokens = 0;
};

/// What most decoders take of new tokens. What the decoder of `Op` takes is `Op::Tokens<T>`, which
/// has these two first.
template <class T>
struct KeyValueTokens {
  View<const T> k;  ///< [B, Hk, n, D]
  View<const T> v;  ///< [B, Hk, n, Dv]
};

/// An attention operator whose tokens may come one after the other.
template <class Op, class T>
concept IncrementalAttention = Attention<Op, T> &&
    requires(const Op op, const DecoderShape& shape,
             decltype(op.template decoder<T>(shape)) decoder,
             const typename Op::template Tokens<T>& tokens, const Inputs<T>& inputs,
             const View<T>& out, const Saved<T>& saved, Serial& executor, Index length) {
  /// adds the tokens
  decoder.append(tokens);
  /// attention of the last positions, as `forward` of all tokens gives it
  decoder.step(inputs, out, saved, executor);
  /// tokens so far
  { decoder.length() } -> std::same_as<Index>;
  /// forgets the tokens from that position on
  decoder.rollback(length);
  /// the same tokens again, in memory of their own
  { decoder.fork() } -> std::same_as<decltype(op.template decoder<T>(shape))>;
};

/// The scalar of a View, or of a tensor or matrix that can be viewed.
template <class X>
using Scalar = typename ViewTraits<std::remove_cvref_t<X>>::Scalar;

namespace detail {

/// What may run the work of an operator.
template <class E>
concept RunsWork = requires(E& executor) {
  as_executor(executor);
};

template <class... X>
concept Tensors = (Viewable<X> && ...);

/// Whether q, k and v are tensors of one scalar that there is attention of.
template <class Q, class K, class V>
concept TensorsOfOneScalar = Tensors<Q, K, V> && TensorScalar<Scalar<Q>> &&
    std::same_as<Scalar<K>, Scalar<Q>> && std::same_as<Scalar<V>, Scalar<Q>>;

}  // namespace detail

/// Attention of q over k and v into a new tensor [B, Hq, Nq, Dv] of the kind of q: an Eigen tensor
/// in q's storage order, a matrix if q is one, a Tensor4 if it is a View. `executor` as in
/// `forward`.
template <class Op, class Q, class K, class V, detail::RunsWork E = Serial>
requires detail::TensorsOfOneScalar<Q, K, V> && Attention<Op, Scalar<Q>>
[[nodiscard]] auto attend(const Op& op, const Q& q, const K& k, const V& v, E&& executor = {}) {
  using T = Scalar<Q>;
  const Inputs<T> inputs{q, k, v};
  auto out =
      ViewTraits<Q>::make({inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), inputs.v.width()});
  op.forward(inputs, View<T>(out), Saved<T>{}, executor);
  return out;
}

namespace detail {

/// Says in one sentence why the call above does not take these.
template <class Q, class K, class V, class E = Serial>
constexpr void explain_attend() {
  constexpr bool are_tensors = Tensors<Q, K, V>;
  static_assert(are_tensors,
                "fovea: attend takes q, k and v as Eigen tensors of rank 4, Eigen matrices, or "
                "fovea::View, all by <fovea/core/eigen.hpp>; evaluate other expressions first");
  if constexpr (are_tensors) {
    constexpr bool are_numbers = TensorScalar<Scalar<Q>>;
    constexpr bool are_alike =
        std::same_as<Scalar<K>, Scalar<Q>> && std::same_as<Scalar<V>, Scalar<Q>>;
    static_assert(are_numbers,
                  "fovea: attention is of float, double, Eigen::bfloat16 or Eigen::half; convert "
                  "other tensors first, for instance by q.cast<float>()");
    static_assert(!are_numbers || are_alike, "fovea: q, k and v have one scalar type");
    static_assert(!are_numbers || !are_alike || RunsWork<E>,
                  "fovea: what runs the work is an Executor, for instance fovea::ThreadPool, or an "
                  "Eigen::ThreadPoolDevice (<fovea/core/thread_pool.hpp>)");
  }
}

/// What a call of `attend` that is wrong somewhere begins with.
template <class Q, class Op>
concept MeantFor = Attention<Op, float> || Viewable<Q>;

}  // namespace detail

/// Every other call on an operator or on tensors: does not compile, and says why.
template <class Op, detail::MeantFor<Op> Q, class... Rest>
Q attend(const Op& /*op*/, const Q& q, const Rest&... /*rest*/) {
  constexpr bool is_whole = Attention<Op, float> && (sizeof...(Rest) == 2 || sizeof...(Rest) == 3);
  static_assert(is_whole,
                "fovea: write attend(op, q, k, v), or attend(op, q, k, v, pool), with an operator "
                "such as fovea::FullAttention{{.causal = true}}");
  if constexpr (is_whole) detail::explain_attend<Q, Rest...>();
  return q;
}

FOVEA_NAMESPACE_END
