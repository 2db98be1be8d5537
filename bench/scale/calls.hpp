// SPDX-License-Identifier: MIT
/// \file
/// The passes of an operator as fovea_scale calls them. Those over ranks are found by their
/// arguments, in the headers of the family that a source includes.
#pragma once

#include <utility>

#include "bench/scale/system.hpp"
#include "fovea/attention/attention.hpp"

namespace bench {

/// The tensors of a call, as functions of Tensors.
template <class OpOf, class Inputs, class Saved, class Grads>
struct Call {
  OpOf op;  ///< op(rows of the sequence)
  Inputs inputs;
  Saved saved;
  Grads grads;
  std::function<View<float>(Tensors&)> out = [](Tensors& t) { return t.out(); };
  std::function<View<const float>(Tensors&)> d_out = [](Tensors& t) { return t.d_out(); };

  Call(OpOf op_of, Inputs reads, Saved saves, Grads writes)
      : op(std::move(op_of)),
        inputs(std::move(reads)),
        saved(std::move(saves)),
        grads(std::move(writes)) {}
};

/// An operator that is the same for sequences of any length.
template <class Op>
auto same(const Op& op) {
  return [op](Index /*rows*/) { return op; };
}

/// Inputs that are q, k and v.
template <class Op>
fovea::InputsOf<Op, float> read_qkv(Tensors& t) {
  fovea::InputsOf<Op, float> in;
  in.q = t.q();
  in.k = t.k();
  in.v = t.v();
  return in;
}
/// Gradients of these.
template <class Op>
fovea::GradsOf<Op, float> qkv_grads(Tensors& t) {
  fovea::GradsOf<Op, float> grads;
  grads.q = t.d_q();
  grads.k = t.d_k();
  grads.v = t.d_v();
  return grads;
}
/// Nothing is saved.
template <class Op>
fovea::SavedOf<Op, float> saves_nothing(Tensors& /*t*/) {
  return {};
}
/// lse is saved, if anything is.
template <class Op>
auto saves_lse(bool saves) {
  return [saves](Tensors& t) {
    fovea::SavedOf<Op, float> made;
    if (saves) made.lse = t.lse();
    return made;
  };
}

/// A forward pass.
template <class C>
PassOfSystem forward_of(const C& call, Costs costs) {
  return {[=](Tensors& t) { call.inputs(t), call.out(t), call.saved(t); },
          [=](Tensors& t) {
            call.op(t.sequence()).forward(call.inputs(t), call.out(t), call.saved(t));
          },
          [=](Tensors& t, const Sharding& rows) {
            return forward(call.op(t.sequence()), call.inputs(t), call.out(t), call.saved(t), rows);
          },
          std::move(costs)};
}

/// A backward pass.
template <class C>
PassOfSystem backward_of(const C& call, Costs costs) {
  return {
      [=](Tensors& t) { call.inputs(t), call.out(t), call.saved(t), call.d_out(t), call.grads(t); },
      [=](Tensors& t) {
        call.op(t.sequence())
            .backward(call.inputs(t), View<const float>(call.out(t)), call.saved(t), call.d_out(t),
                      call.grads(t));
      },
      [=](Tensors& t, const Sharding& rows) {
        return backward(call.op(t.sequence()), call.inputs(t), View<const float>(call.out(t)),
                        call.saved(t), call.d_out(t), call.grads(t), rows);
      },
      std::move(costs)};
}

/// A system of both.
template <class C>
System system_of(Look look, LayoutOf layout, const C& call, const CostsOf& costs,
                 Index multiple = 1) {
  return {std::move(look), layout, forward_of(call, costs(false)), backward_of(call, costs(true)),
          multiple};
}

/// The same of an operator of q, k and v that saves lse.
template <class OpOf>
System qkv_system(Look look, LayoutOf layout, const OpOf& op, bool saves, const CostsOf& costs) {
  using Op = decltype(op(0));
  return system_of(std::move(look), layout,
                   Call(op, read_qkv<Op>, saves_lse<Op>(saves), qkv_grads<Op>), costs);
}

}  // namespace bench
