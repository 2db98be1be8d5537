// SPDX-License-Identifier: MIT
/// \file
/// A causal far field across ranks: states are passed along the ranges of rows.
#pragma once

#include <exception>

#include "fovea/attention/linear/stream.hpp"
#include "fovea/distributed/linear/key_head_chain.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The causal far field of one forward pass.
template <class T, class Field>
class FarFieldChain {
 public:
  /// Allocates all memory.
  /// \param inputs of this rank's rows, checked   \param weights must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  FarFieldChain(const LinearFamilyInputs<T>& inputs, const Field& far, const FarWeights<T>& weights,
                bool has_near, const View<T>& out, const Rows& rows, const ExecutorRef& executor)
      : inputs_(inputs),
        sizes_(far.linear_shape(shape_of(inputs))),
        stream_(inputs, fovea::detail::group_size(inputs.q.heads(), inputs.k.heads()), far, weights,
                has_near, out),
        chain_({.batch = inputs.q.batch(),
                .key_heads = inputs.k.heads(),
                .group = stream_.group(),
                .state = Stream::state_elements(sizes_) + Stream::delta_elements(sizes_),
                .scratch = Stream::scratch_elements(sizes_)},
               inputs.key_lengths, rows, executor) {}
  FarFieldChain(const FarFieldChain&) = delete;
  FarFieldChain& operator=(const FarFieldChain&) = delete;

  /// This rank's communication statistics.
  Traffic traffic() const { return chain_.traffic(); }

  /// Computes the far field of this rank's rows. All messages are exchanged even if computing
  /// throws. \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    using Strip = typename Stream::Strip;
    return chain_.template run<Strip>(
        executor, [&](Index b, Index key_head, const Strip& strip, const Memory& at) {
          stream_.add(b, key_head, strip,
                      {at.state, at.state + Stream::state_elements(sizes_), nullptr, 0, at.scratch,
                       at.rows});
        });
  }

 private:
  using Stream = CausalStream<T, Field>;
  using Memory = typename KeyHeadChain<T>::Memory;

  LinearFamilyInputs<T> inputs_;
  LinearShape sizes_;
  Stream stream_;
  KeyHeadChain<T> chain_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
