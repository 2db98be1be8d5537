// SPDX-License-Identifier: MIT
/// \file
/// The passes of an operator as fovea_scale calls them. Those over ranks are found by their
/// arguments, in the headers of the family that a source includes.
#pragma once

#include <utility>

#include "bench/scale/system.hpp"

namespace bench {

/// A forward pass.
/// \param op(sequence) gives the operator for a sequence of so many rows
/// \param inputs(tensors), saved(tensors) what it reads, and what it saves
template <class OpOf, class Inputs, class Saved>
PassOfSystem forward_of(const OpOf& op, const Inputs& inputs, const Saved& saved, Costs costs) {
  return {[=](Tensors& t) { op(t.sequence()).forward(inputs(t), t.out(), saved(t)); },
          [=](Tensors& t, const Rows& rows) {
            return forward(op(t.sequence()), inputs(t), t.out(), saved(t), rows);
          },
          std::move(costs)};
}

/// A backward pass. \param grads(tensors) what it writes
template <class OpOf, class Inputs, class Saved, class Grads>
PassOfSystem backward_of(const OpOf& op, const Inputs& inputs, const Saved& saved,
                         const Grads& grads, Costs costs) {
  return {[=](Tensors& t) {
            op(t.sequence()).backward(inputs(t), t.out(), saved(t), t.d_out(), grads(t));
          },
          [=](Tensors& t, const Rows& rows) {
            return backward(op(t.sequence()), inputs(t), t.out(), saved(t), t.d_out(), grads(t),
                            rows);
          },
          std::move(costs)};
}

}  // namespace bench
