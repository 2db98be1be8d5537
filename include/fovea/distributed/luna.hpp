// SPDX-License-Identifier: MIT
/// \file
/// Luna attention over a sequence that is sharded over ranks, all of which have the packed rows.
#pragma once

#include <concepts>

#include "fovea/attention/luna.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A step of Luna attention.
template <class Op, class T>
concept LunaStepAttention = (std::same_as<Op, LunaPack> ||
                             std::same_as<Op, LunaUnpack>)&&std::floating_point<T>;

/// Both passes of a step, for tensors of T. `forward` and `backward` document them.
template <class Op, class T>
class LunaCalls {
 public:
  /// \param call of the same operator
  static CommStats forward(const Op& op, const SoftmaxInputs<T>& inputs, const View<T>& out,
                           const SoftmaxSaved<T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call);
  /// \param call of the same operator
  static CommStats backward(const Op& op, const SoftmaxInputs<T>& inputs, const View<const T>& out,
                            const SoftmaxSaved<T>& saved, const SoftmaxOutGrads<T>& d_out,
                            const SoftmaxGrads<T>& grads, const Sharding& rows,
                            const detail::CollectiveCall& call);
};

/// A step of Luna attention in `forward`. Of LunaPack q [B, Hq, P, D] and out [B, Hq, P, Dv] are of
/// the packed rows, which are the same on all ranks; of LunaUnpack k and v [B, Hk, P, ...]. Neither
/// takes a bias or mask over ranks.
/// Cost: LunaUnpack sends nothing. Of LunaPack a running softmax of P (Dv + 3) numbers for each
/// query head goes from range to range, in the order of the rows, and to all ranks. All ranks
/// compute at once, and wait for each other only to merge. Keys and values of segments of
/// kKeySegment rows that lie on several ranks travel to that of the first row.
/// Memory: the segments that lie on several ranks, and of LunaPack a running softmax of each query
/// head for each of the rank's segments; of LunaUnpack the scratch of `forward` of the operator for
/// each range of the rank's rows.
template <class Op, class T>
requires LunaStepAttention<Op, T>
struct DistributedForward<Op, T> : LunaCalls<Op, T> {
};

/// A step of Luna attention in `backward`. Of LunaPack d_out is the same on all ranks. Gradients of
/// packed rows are their sums over all ranks; all ranks want that of q of LunaPack, or none. The
/// gradient of a bias is refused.
/// Cost: the sums of packed rows go from range to range and to all ranks: of LunaPack P D numbers
/// for each query head, of LunaUnpack P rows of D and of Dv numbers, rounded up to whole vectors,
/// for each key head, which go over the ranges once for each of its query heads. All ranks compute
/// at once, and wait for each other only to add up. Rows of segments that lie on several ranks
/// travel to that of the first row, and their gradients back: segments of kKeySegment keys, or
/// blocks of block_rows(N) queries. Where lse is large, LunaPack sends 4 P numbers for each query
/// head more.
/// Memory: the rank's rows twice, and what its blocks add to the packed rows: for each block of 512
/// rows (of less, if N is below 4096) as many numbers as in one sum.
template <class Op, class T>
requires LunaStepAttention<Op, T>
struct DistributedBackward<Op, T> : LunaCalls<Op, T> {
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/luna.inl.hpp"
#endif
