// SPDX-License-Identifier: MIT
/// \file
/// The concepts of attention operators, and `attend`, which returns the attention as a new tensor.
/// An operator's argument types belong to its family (fovea/attention/call).
#pragma once

#include <concepts>
#include <type_traits>

#include "fovea/attention/call/grads.hpp"
#include "fovea/attention/call/inputs.hpp"
#include "fovea/attention/call/saved.hpp"
#include "fovea/attention/call/shapes.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/members.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Empty if Op is not an operator: a compiler that substitutes into a declaration before it checks
/// the constraint then discards that declaration, where a missing member would be an error.
template <class Op, class T>
struct TypesOf {};
template <class Op, class T>
requires requires {
  typename Op::template Inputs<T>;
  typename Op::template Saved<T>;
  typename Op::template Grads<T>;
}
struct TypesOf<Op, T> {
  using Inputs = typename Op::template Inputs<T>;
  using Saved = typename Op::template Saved<T>;
  using Grads = typename Op::template Grads<T>;
};

}  // namespace detail

/// The inputs of operator `Op`, for tensors of T. Nothing is deduced from a parameter of this type,
/// so a call may pass braces, or anything that converts to the operator's own type. The same holds
/// for SavedOf and GradsOf.
template <class Op, class T>
using InputsOf = typename detail::TypesOf<Op, T>::Inputs;
/// What `Op`'s forward pass saves for its backward pass, for tensors of T.
template <class Op, class T>
using SavedOf = typename detail::TypesOf<Op, T>::Saved;
/// The gradients that `Op`'s backward pass writes, for tensors of T.
template <class Op, class T>
using GradsOf = typename detail::TypesOf<Op, T>::Grads;

/// An attention operator for the scalar T: a small value that holds its options. Its members
/// `Inputs<T>`, `Saved<T>`, `Grads<T>` and `Shape` are its family's types (call/inputs.hpp,
/// call/saved.hpp, call/grads.hpp and call/shapes.hpp).
template <class Op, class T>
concept Attention = std::copyable<Op> &&
    requires(const Op op, const typename Op::template Inputs<T>& inputs, const View<T>& out,
             const typename Op::template Saved<T>& saved, const typename Op::Shape& shape,
             Serial& executor) {
  /// the operator's name, as in error messages, tables and benchmarks
  { Op::name() } -> std::convertible_to<const char*>;
  /// throws what `forward` would throw, and does nothing else
  op.check(inputs, out, saved);
  /// computes out, and those members of `saved` that have a tensor
  op.forward(inputs, out, saved, executor);
  /// bytes of scratch memory for `forward` with that many workers
  { op.template workspace_bytes<T>(shape, 1) } -> std::same_as<Index>;
  /// number of visible (query, key) pairs of a query head, without regard to key lengths
  { op.attended_pairs(shape, Index{0}) } -> std::same_as<Index>;
};

/// An attention operator that has a backward pass.
template <class Op, class T>
concept DifferentiableAttention = Attention<Op, T> && std::floating_point<T> &&
    requires(const Op op, const typename Op::template Inputs<T>& inputs, const View<const T>& out,
             const typename Op::template Saved<T>& saved,
             const typename Op::template Grads<T>& grads, Serial& executor) {
  /// throws what `backward` would throw, and does nothing else
  op.check_backward(inputs, out, saved, out, grads);
  /// computes `grads` from d_out, the gradient of the loss with respect to out
  op.backward(inputs, out, saved, out, grads, executor);
};

/// n new tokens for most decoders. `Op`'s decoder takes `Op::Tokens<T>`, which begins with these
/// two members.
template <class T>
struct KeyValueTokens {
  ViewMember<const T> k;  ///< keys, [B, Hk, n, D]
  ViewMember<const T> v;  ///< values, [B, Hk, n, Dv]
};

/// An attention operator that has a decoder for token-by-token calls.
template <class Op, class T>
concept IncrementalAttention = Attention<Op, T> &&
    requires(const Op op, const typename Op::DecoderShape& shape,
             decltype(op.template decoder<T>(shape)) decoder,
             const typename Op::template Tokens<T>& tokens,
             const typename Op::template Inputs<T>& inputs, const View<T>& out,
             const typename Op::template Saved<T>& saved, Serial& executor, Index length) {
  /// appends the tokens
  decoder.append(tokens);
  /// computes attention for the last positions, as `forward` does for all tokens
  decoder.step(inputs, out, saved, executor);
  /// the number of tokens so far
  { decoder.length() } -> std::same_as<Index>;
  /// drops the tokens from position `length` on
  decoder.rollback(length);
  /// returns an independent copy
  { decoder.fork() } -> std::same_as<decltype(op.template decoder<T>(shape))>;
};

/// The element type of a View, or of a tensor or matrix that can be viewed.
template <class X>
using Scalar = typename ViewTraits<std::remove_cvref_t<X>>::Scalar;

namespace detail {

/// Types that can be viewed as tensors.
template <class... X>
concept Tensors = (Viewable<X> && ...);

/// q, k and v are tensors of one scalar type that attention supports.
template <class Q, class K, class V>
concept TensorsOfOneScalar = Tensors<Q, K, V> && TensorScalar<Scalar<Q>> &&
    std::same_as<Scalar<K>, Scalar<Q>> && std::same_as<Scalar<V>, Scalar<Q>>;

/// `Op`'s inputs, or a type that converts to them.
template <class In, class Op>
concept InputsOfOperator = AnyInputs<In> && requires {
  requires std::convertible_to<const In&, typename Op::template Inputs<InputScalar<In>>>;
};

/// Fails to compile: the inputs belong to another family.
template <class In>
constexpr void refuse_family() {
  static_assert(!std::same_as<In, In>,
                "fovea: these inputs belong to another family of operators or another scalar type; "
                "use the operator's Inputs<T>, for example SoftmaxInputs<T> for FullAttention");
}

/// What a call saves: nothing if `saved` is the executor.
template <class To, class S>
To saved_or_none(const S& saved) {
  if constexpr (std::convertible_to<const S&, To>) {
    return saved;
  } else {
    return {};
  }
}

/// One of two arguments.
template <bool kFirst, class A, class B>
auto& one_of(A& a, B& b) {
  if constexpr (kFirst) {
    return a;
  } else {
    return b;
  }
}

/// Computes attention into `out`, which has the right shape.
template <class T, class Op, class In, class Out, class E>
void attend_into(const Op& op, const In& inputs, Out& out, E&& executor) {
  if constexpr (!ShardsRows<E>) {  // the caller reports the rest
    op.forward(inputs, View<T>(out), typename Op::template Saved<T>{}, executor);
  }
}

/// Computes attention into a new Tensor4.
template <class T, class Op, class In, class E>
auto attend_to_inputs(const Op& op, const In& inputs, E&& executor) {
  auto out = ViewTraits<View<const T>>::make(out_shape(inputs));
  attend_into<T>(op, inputs, out, executor);
  return out;
}

}  // namespace detail

/// Returns the attention of q [B, Hq, Nq, D] over k [B, Hk, Nk, D] and v [B, Hk, Nk, Dv] as a new
/// tensor [B, Hq, Nq, Dv]. The result has q's kind: an Eigen tensor in q's storage order, a matrix
/// if q is a matrix, and a Tensor4 if q is a View.
/// \param executor runs the work, as in `forward`; by default the calling thread
/// \throws as `forward` does
template <class Op, class Q, class K, class V, detail::ExecutorLike E = Serial>
requires detail::TensorsOfOneScalar<Q, K, V> && Attention<Op, Scalar<Q>>
[[nodiscard]] auto attend(const Op& op, const Q& q, const K& k, const V& v, E&& executor = {}) {
  static_assert(!ShardsRows<E>, FOVEA_SHARDS_NO_ROWS);
  using T = Scalar<Q>;
  typename Op::template Inputs<T> inputs;
  inputs.q = View<const T>(q);
  inputs.k = View<const T>(k);
  inputs.v = View<const T>(v);
  auto out = ViewTraits<Q>::make(detail::out_shape(inputs));
  detail::attend_into<T>(op, inputs, out, executor);
  return out;
}

/// The same with all of the operator's inputs; returns a new Tensor4. For float tensors the inputs
/// can be written in braces: `attend(op, {.q = q, .k = k, .v = v, .bias = bias})`.
template <class Op, detail::ExecutorLike E = Serial>
requires Attention<Op, float>
[[nodiscard]] auto attend(const Op& op,
                          const std::type_identity_t<typename Op::template Inputs<float>>& inputs,
                          E&& executor = {}) {
  static_assert(!ShardsRows<E>, FOVEA_SHARDS_NO_ROWS);
  return detail::attend_to_inputs<float>(op, inputs, executor);
}

/// The same for other scalars than float, with inputs that name their type:
/// `attend(op, fovea::SoftmaxInputs<double>{.q = q, .k = k, .v = v})`.
template <class Op, detail::InputsOfOperator<Op> In, detail::ExecutorLike E = Serial>
requires(!std::same_as<detail::InputScalar<In>, float>) &&
    Attention<Op, detail::InputScalar<In>> [[nodiscard]] auto attend(const Op& op, const In& inputs,
                                                                     E&& executor = {}) {
  static_assert(!ShardsRows<E>, FOVEA_SHARDS_NO_ROWS);
  return detail::attend_to_inputs<detail::InputScalar<In>>(op, inputs, executor);
}

namespace detail {

/// Fails to compile, with a message why `attend` does not take these arguments.
template <class Q, class K, class V, class E = Serial>
constexpr void explain_attend() {
  constexpr bool are_tensors = Tensors<Q, K, V>;
  static_assert(are_tensors,
                "fovea: attend accepts q, k and v as Eigen tensors of rank 4, Eigen matrices "
                "(include <fovea/core/eigen.hpp>) or fovea::View; evaluate expressions first");
  if constexpr (are_tensors) {
    constexpr bool are_numbers = TensorScalar<Scalar<Q>>;
    constexpr bool are_alike =
        std::same_as<Scalar<K>, Scalar<Q>> && std::same_as<Scalar<V>, Scalar<Q>>;
    static_assert(are_numbers,
                  "fovea: attention supports float, double, Eigen::bfloat16 and Eigen::half; "
                  "convert other tensors first, for example with q.cast<float>()");
    static_assert(!are_numbers || are_alike, "fovea: q, k and v must have the same scalar type");
    static_assert(!are_numbers || !are_alike || ExecutorLike<E>, FOVEA_RUNS_WORK);
  }
}

/// A first argument, after the operator, of a call meant for `attend`.
template <class Q, class Op>
concept MeantFor = Attention<Op, float> || Viewable<Q>;

}  // namespace detail

/// Catches every other call of `attend` on an operator or on tensors, to fail with a clear message.
template <class Op, detail::MeantFor<Op> Q, class... Rest>
requires(!detail::InputsOfOperator<Q, Op>) Q
    attend(const Op& /*op*/, const Q& q, const Rest&... /*rest*/) {
  constexpr bool is_family = !detail::AnyInputs<Q>;
  if constexpr (!is_family) detail::refuse_family<Q>();
  constexpr bool is_whole = Attention<Op, float> && (sizeof...(Rest) == 2 || sizeof...(Rest) == 3);
  static_assert(!is_family || is_whole,
                "fovea: call attend(op, q, k, v) or attend(op, q, k, v, pool) with an operator "
                "such as fovea::FullAttention{{.causal = true}}");
  if constexpr (is_family && is_whole) detail::explain_attend<Q, Rest...>();
  return q;
}

FOVEA_NAMESPACE_END
