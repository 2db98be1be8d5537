// SPDX-License-Identifier: MIT
/// \file
/// The Fourier mixer over a sequence that is spread over ranks: each rank transforms some pairs of
/// rows, and then all rows of some pairs of columns. It needs FFTW, too, so fovea/distributed.hpp
/// leaves it out.
#pragma once

#include <type_traits>

#include "fovea/distributed/spectral/mixer_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the mixer of a sequence that is spread over ranks, on all of them together; every rank
/// calls it with its own rows. The bits are those of `op.forward` over the whole sequence, unless
/// FFTW measures (FftPlanning).
/// \param x [B, 1, own rows, D], in ascending order   \param out [B, 1, own rows, D], written
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: a transform of D numbers for each pair of rows that the rank computes (`layout_of_pairs`),
/// and its share of the transforms along the rows. What travels: one row of each pair that lies on
/// two ranks; the sums, about half as many as x has numbers, to the ranks of their columns; and the
/// result back. Memory: the rank's rows and those that it receives, their sums twice and their
/// result once; and of its columns the sums of all rows, which are half as many as the rows have
/// numbers, twice, the sequences of one batch entry, and the result twice.
template <class T, class E = Serial>
Traffic forward(const FourierMixer& op, const View<const std::type_identity_t<T>>& x,
                const View<T>& out, const Rows& rows, E&& executor = {}) {
  return MixerCalls<T>::forward(op, x, out, rows, detail::RanksCall(op, executor));
}

/// Computes the gradient of the mixer's x, for a sequence that is spread over ranks, on all of them
/// together. The bits are those of `op.backward` over the whole sequence, unless FFTW measures.
/// \param d_out [B, 1, own rows, D]   \param d_x [B, 1, own rows, D], written
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
template <class T, class E = Serial>
Traffic backward(const FourierMixer& op, const View<const std::type_identity_t<T>>& d_out,
                 const View<T>& d_x, const Rows& rows, E&& executor = {}) {
  return MixerCalls<T>::backward(op, d_out, d_x, rows, detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END
