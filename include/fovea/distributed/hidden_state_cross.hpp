// SPDX-License-Identifier: MIT
/// \file
/// The Fourier cross of hidden states over a sequence that is spread over ranks: each rank
/// transforms all rows of some channels. It needs FFTW, too, so fovea/distributed.hpp leaves it
/// out.
#pragma once

#include <type_traits>

#include "fovea/distributed/spectral/cross_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the cross of a sequence that is spread over ranks, on all of them together; every rank
/// calls it with its own rows. The bits are those of `op.forward` over the whole sequence.
/// \param inputs f1 and f2 of this rank's rows, [B, 1, own rows, C] in ascending order; key lengths
/// count rows of the whole sequence
/// \param out [B, 1, own rows, C], written
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of a share of the channels, and all numbers travel: f1 and f2 to the ranks of their
/// channels, and the result back. Memory: all rows of this rank's channels of three tensors, three
/// times.
template <class T, class E = Serial>
Traffic forward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                const View<std::type_identity_t<T>>& out, const Rows& rows, E&& executor = {}) {
  return CrossCalls<T>::forward(op, inputs, out, rows, detail::RanksCall(op, executor));
}

/// Computes the gradients of the cross of a sequence that is spread over ranks, on all of them
/// together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`   \param d_out [B, 1, own rows, C]
/// \param grads of this rank's rows: those that have a tensor are written; the ranks may want
/// different ones
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
template <class T, class E = Serial>
Traffic backward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                 const View<const std::type_identity_t<T>>& d_out,
                 const CrossGrads<std::type_identity_t<T>>& grads, const Rows& rows,
                 E&& executor = {}) {
  return CrossCalls<T>::backward(op, inputs, d_out, grads, rows, detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END
