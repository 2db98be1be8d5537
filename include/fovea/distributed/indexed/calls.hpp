// SPDX-License-Identifier: MIT
/// \file
/// The calls of attention to lists of keys over ranks, which depend on the scalar type alone, so
/// that a library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/attention/indexed.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Attention over lists of keys in `forward`. `indices` are positions in the sequence.
/// Cost: a pass over the rank's lists; each key and value that they name and that is visible is
/// received once. Memory: the rank's keys, values and lists once more, and what it receives.
template <class T>
struct RanksForward<IndexedAttention, T> {
  /// Computes the pass.
  static Traffic forward(const IndexedAttention& op, const IndexedInputs<T>& inputs,
                         const View<T>& out, const IndexedSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
};

/// Attention over lists of keys in `backward`.
/// Cost: the logits and gradients of weights are computed for queries and for keys once each. The
/// rows that list keys of another rank go there, with their lists, and the keys come to them.
/// Memory: the rank's rows and lists twice, and what it receives twice.
template <class T>
struct RanksBackward<IndexedAttention, T> {
  /// Computes the pass.
  static Traffic backward(const IndexedAttention& op, const IndexedInputs<T>& inputs,
                          const View<const T>& out, const IndexedSaved<T>& saved,
                          const View<const T>& d_out, const IndexedGrads<T>& grads,
                          const Rows& rows, const detail::RanksCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/indexed/calls.inl.hpp"
#endif
