// SPDX-License-Identifier: MIT
/// \file
/// A causal far field across ranks: states are passed along the ranges of rows.
#pragma once

#include <exception>

#include "fovea/attention/linear/stream.hpp"
#include "fovea/distributed/linear/key_head_scan.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The causal far field of one forward pass.
template <class T, class Field>
class FarFieldScan {
 public:
  /// Allocates all memory.
  /// \param inputs of this rank's rows, checked   \param weights must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  FarFieldScan(const LinearFamilyInputs<T>& inputs, const Field& far_field,
               const FarWeights<T>& weights, bool has_near, const View<T>& out,
               const Sharding& rows, const ExecutorRef& executor)
      : inputs_(inputs),
        sizes_(far_field.linear_shape(shape_of(inputs))),
        stream_(inputs, fovea::detail::group_size(inputs.q.heads(), inputs.k.heads()), far_field,
                weights, has_near, out),
        scan_({.batch = inputs.q.batch(),
               .key_heads = inputs.k.heads(),
               .group = stream_.group(),
               .state = Stream::state_elements(sizes_) + Stream::delta_elements(sizes_),
               .scratch = Stream::scratch_elements(sizes_)},
              inputs.key_lengths, rows, executor) {}
  FarFieldScan(const FarFieldScan&) = delete;
  FarFieldScan& operator=(const FarFieldScan&) = delete;

  /// This rank's communication statistics.
  CommStats comm_stats() const { return scan_.comm_stats(); }

  /// Computes the far field of this rank's rows. All messages are exchanged even if computing
  /// throws. \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    using RowBlock = typename Stream::RowBlock;
    return scan_.template run<RowBlock>(
        executor, [&](Index b, Index key_head, const RowBlock& row_block, const Memory& at) {
          stream_.add(b, key_head, row_block,
                      {at.state, at.state + Stream::state_elements(sizes_), nullptr, 0, at.scratch,
                       at.rows});
        });
  }

 private:
  using Stream = CausalStream<T, Field>;
  using Memory = typename KeyHeadScan<T>::Memory;

  LinearFamilyInputs<T> inputs_;
  LinearShape sizes_;
  Stream stream_;
  KeyHeadScan<T> scan_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
