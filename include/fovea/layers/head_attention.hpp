// SPDX-License-Identifier: MIT
/// \file
/// An operator between the projections of a layer: heads are columns of its matrices.
#pragma once

#include <array>

#include "fovea/layers/learned_inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// Calls an operator `Op` on heads, with its learned inputs `G`, and keeps what its backward
/// pass reads. The learned inputs are made of the source.
template <class Op, class T, class G = LearnedInputs<Op, T>>
class HeadAttention {
  static_assert(DifferentiableAttention<Op, T>);

 public:
  Op op;      ///< its options may change from step to step
  G learned;  ///< what it learns beside the projections

  struct Saved {
    Buffer<T> out;    ///< [B, 1, L, H D]
    Buffer<T> d_out;  ///< the same
    Buffer<T> lse;    ///< [B, H, L, 1], if the operator has one
    typename G::Saved learned;
  };

  HeadAttention() = default;
  HeadAttention(const Op& chosen, const HeadSizes& sizes, Initialiser& initialiser)
      : op(chosen), learned(chosen, sizes, initialiser) {}

  template <class F>
  void visit(F&& f) {
    learned.visit(f);
  }

  /// \param qkv [B, H, L, D], [B, Hk, L, D] twice   \return the heads' outputs side by side
  template <class E>
  View<const T> forward(const std::array<View<const T>, 3>& qkv, const Tokens<T>& source,
                        Saved& saved, E&& executor) const {
    const auto& q = qkv[0];
    const View<T> out = saved.out.resize(q.batch(), q.rows(), q.heads() * q.width());
    if (G::kHasLse) saved.lse.resize({q.batch(), q.heads(), q.rows(), 1});
    learned.compute(op, source, saved.learned, executor);
    const auto [inputs, kept] = attached(qkv, source, saved);
    op.forward(inputs, as_heads(out, 0, q.heads(), q.width()), kept, executor);
    return out;
  }

  /// Room for the gradient of what `forward` returned.
  static View<T> d_out(Saved& saved) { return saved.d_out.resize(saved.out.view().shape()); }

  /// Gradients of the projections, from saved.d_out. \param d_qkv written
  template <class E>
  void backward(const std::array<View<const T>, 3>& qkv, const Tokens<T>& source, Saved& saved,
                const std::array<View<T>, 3>& d_qkv, E&& executor) {
    const Index heads = qkv[0].heads();
    const Index width = qkv[0].width();
    const auto [inputs, kept] = attached(qkv, source, saved);
    GradsOf<Op, T> grads;
    grads.q = d_qkv[0];
    grads.k = d_qkv[1];
    grads.v = d_qkv[2];
    learned.ask(source, saved.learned, grads);
    const View<const T> out(as_heads(saved.out.view(), 0, heads, width));
    const View<const T> d_out(as_heads(saved.d_out.view(), 0, heads, width));
    op.backward(inputs, out, kept, d_out, grads, executor);
  }

  /// Gradients of the learned inputs; after `backward`.
  /// \param d_source added to, if it is given
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    learned.finish(source, saved.learned, d_source, executor);
  }

 private:
  std::pair<InputsOf<Op, T>, SavedOf<Op, T>> attached(const std::array<View<const T>, 3>& qkv,
                                                      const Tokens<T>& source, Saved& saved) const {
    InputsOf<Op, T> inputs;
    inputs.q = qkv[0];
    inputs.k = qkv[1];
    inputs.v = qkv[2];
    inputs.key_lengths = source.key_lengths;
    SavedOf<Op, T> kept;
    if constexpr (G::kHasLse) kept.lse = saved.lse.view();
    learned.attach(source, saved.learned, inputs, kept);
    return {inputs, kept};
  }
};

FOVEA_NAMESPACE_END
