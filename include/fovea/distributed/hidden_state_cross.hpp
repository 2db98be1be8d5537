// SPDX-License-Identifier: MIT
/// \file
/// The Fourier cross of hidden states over a sharded sequence: each rank transforms all rows of
/// some channels. It requires FFTW, so fovea/distributed.hpp does not include it.
#pragma once

#include <type_traits>

#include "fovea/distributed/messages/call.hpp"
#include "fovea/spectral/hidden_state_cross.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the forward pass, for tensors of T. \param call of the same operator
template <class T>
CommStats cross(const HiddenStateCross& op, const CrossInputs<T>& inputs, const View<T>& out,
                const Sharding& rows, const detail::CollectiveCall& call);
/// Computes the backward pass. \param call of the same operator
template <class T>
CommStats cross_backward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                         const View<const T>& d_out, const CrossGrads<T>& grads,
                         const Sharding& rows, const detail::CollectiveCall& call);

/// Computes the cross of a sharded sequence. All ranks call it together, each with its own rows.
/// Results are bit-identical to `op.forward` over the whole sequence.
/// \param inputs f1 and f2 of this rank's rows, [B, 1, own rows, C] in ascending order; key lengths
/// count rows of the whole sequence
/// \param out [B, 1, own rows, C], written
/// \param executor as in the operator's `forward`
/// \returns this rank's communication statistics
/// \throws as `forward` over softmax operators
///
/// Cost: a share of the channels. All tensors are communicated: f1 and f2 to the ranks of their
/// channels, and the result back. Memory: all rows of this rank's channels of three tensors, three
/// times.
template <class T, class E = Serial>
CommStats forward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                  const View<std::type_identity_t<T>>& out, const Sharding& rows,
                  E&& executor = {}) {
  return cross<T>(op, inputs, out, rows, detail::CollectiveCall(op, executor));
}

/// Computes the gradients of the cross of a sharded sequence. Collective. Results are bit-identical
/// to `op.backward` over the whole sequence.
/// \param inputs as in `forward`   \param d_out [B, 1, own rows, C]
/// \param grads of this rank's rows: those with a tensor are written; ranks may request different
/// ones
/// \param executor as in `forward`
/// \returns this rank's communication statistics
/// \throws as `forward`
template <class T, class E = Serial>
CommStats backward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                   const View<const std::type_identity_t<T>>& d_out,
                   const CrossGrads<std::type_identity_t<T>>& grads, const Sharding& rows,
                   E&& executor = {}) {
  return cross_backward<T>(op, inputs, d_out, grads, rows, detail::CollectiveCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI) || !defined(FOVEA_COMPILED_FFTW)
#include "fovea/distributed/spectral/cross_calls.inl.hpp"
#endif
