// SPDX-License-Identifier: MIT
/// \file
/// What every operator takes and gives, the concept Attention, and `attend`, which returns a new
/// tensor.
#pragma once

#include <concepts>
#include <span>
#include <utility>

#include "fovea/core/executor.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

/// The tensors that an operator reads.
template <class T>
struct Inputs {
  View<const T> q;  ///< [B, Hq, Nq, D]
  View<const T> k;  ///< [B, Hk, Nk, D], Hk divides Hq: query head h reads key head h / (Hq / Hk)
  View<const T> v;  ///< [B, Hk, Nk, Dv]
  /// [B]: batch b has the keys [0, key_lengths[b]); empty: all Nk keys.
  std::span<const Index> key_lengths = {};
};

/// What a forward pass writes beside the output, each only if it is given.
template <class T>
struct Saved {
  /// [B, Hq, Nq, 1]: natural logarithm of the row's sum of exp(logit); -inf if it sees no key.
  View<T> lse = {};
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
  /// (query, key) pairs of one head that are visible, without key lengths
  { op.visible_pairs(shape) } -> std::same_as<Index>;
};

/// The scalar of a View, or of a tensor or matrix that can be viewed.
template <class X>
struct ScalarOf {
  using type = typename ViewTraits<X>::Scalar;
};
template <class T>
struct ScalarOf<View<T>> {
  using type = std::remove_const_t<T>;
};
template <class X>
using Scalar = typename ScalarOf<std::remove_cvref_t<X>>::type;

/// Attention of q over k and v into a new tensor [B, Hq, Nq, Dv] of the kind of q (an Eigen tensor
/// in q's storage order; a matrix if q is one). `executor` as in `forward`.
template <class Op, Viewable Q, Viewable K, Viewable V, class E = Serial>
auto attend(const Op& op, const Q& q, const K& k, const V& v, E&& executor = {}) {
  using T = Scalar<Q>;
  const Inputs<T> inputs{q, k, v};
  auto out =
      ViewTraits<Q>::make({inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), inputs.v.width()});
  op.forward(inputs, View<T>(out), Saved<T>{}, executor);
  return out;
}

FOVEA_NAMESPACE_END
