// SPDX-License-Identifier: MIT
/// \file
/// The Fourier mixer over a sharded sequence: each rank transforms some pairs of rows, then all
/// rows of some pairs of columns. It requires FFTW, so fovea/distributed.hpp does not include it.
#pragma once

#include <type_traits>

#include "fovea/distributed/messages/call.hpp"
#include "fovea/spectral/fourier_mixer.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Both passes, which are the same map, for tensors of T. See `forward` and `backward`.
/// \param is_backward whether x and out are gradients   \param call of the same operator
template <class T>
CommStats mix(const FourierMixer& op, bool is_backward, const View<const T>& x, const View<T>& out,
              const Sharding& rows, const detail::CollectiveCall& call);

/// Computes the mixer of a sharded sequence. All ranks call it together, each with its own rows.
/// Results are bit-identical to `op.forward` over the whole sequence, unless FFTW measures
/// (FftPlanning).
/// \param x [B, 1, own rows, D], in ascending order   \param out [B, 1, own rows, D], written
/// \param executor as in the operator's `forward`
/// \returns this rank's communication statistics
/// \throws as `forward` over softmax operators
///
/// Cost: a transform of D numbers for each pair of rows that the rank computes (`layout_of_pairs`),
/// and its share of the transforms along the rows. Communication: one row of each pair split
/// between two ranks; the sums, about half as many numbers as x, to the ranks of their columns; and
/// the result back. Memory: the rank's rows and those that it receives, their sums twice and their
/// result once; and for its columns the sums of all rows (half as many numbers as the rows) twice,
/// the sequences of one batch entry, and the result twice.
template <class T, class E = Serial>
CommStats forward(const FourierMixer& op, const View<const std::type_identity_t<T>>& x,
                  const View<T>& out, const Sharding& rows, E&& executor = {}) {
  return mix<T>(op, false, x, out, rows, detail::CollectiveCall(op, executor));
}

/// Computes the gradient of the mixer's x, for a sharded sequence. Collective. Results are
/// bit-identical to `op.backward` over the whole sequence, unless FFTW measures.
/// \param d_out [B, 1, own rows, D]   \param d_x [B, 1, own rows, D], written
/// \param executor as in `forward`
/// \returns this rank's communication statistics
/// \throws as `forward`
template <class T, class E = Serial>
CommStats backward(const FourierMixer& op, const View<const std::type_identity_t<T>>& d_out,
                   const View<T>& d_x, const Sharding& rows, E&& executor = {}) {
  return mix<T>(op, true, d_out, d_x, rows, detail::CollectiveCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI) || !defined(FOVEA_COMPILED_FFTW)
#include "fovea/distributed/spectral/mixer_calls.inl.hpp"
#endif
