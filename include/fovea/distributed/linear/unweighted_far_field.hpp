// SPDX-License-Identifier: MIT
/// \file
/// The unweighted far field that a distributed backward pass recomputes if a blend's columns have
/// separate logits.
#pragma once

#include <exception>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/linear/far_field.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The far field of this rank's rows, in its own memory. \tparam Field a LinearTerms of T
template <class T, class Field>
class UnweightedFarField {
 public:
  /// Allocates all memory.
  /// \param inputs of this rank's rows, checked   \param shaped any tensor of the output's shape
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  UnweightedFarField(const LinearFamilyInputs<T>& inputs, const Field& far_field,
                     const View<const T>& shaped, const Sharding& rows, const ExecutorRef& executor)
      : memory_(memory_of(executor).take(
            shaped.batch() * shaped.heads() * shaped.rows() * shaped.width(), Index{sizeof(T)})),
        out_(memory_.template data<T>(),
             {shaped.batch(), shaped.heads(), shaped.rows(), shaped.width()}),
        far_(inputs, far_field, none_, false, out_, rows, executor) {}
  UnweightedFarField(const UnweightedFarField&) = delete;
  UnweightedFarField& operator=(const UnweightedFarField&) = delete;

  /// This rank's communication statistics.
  CommStats comm_stats() const { return far_.comm_stats(); }
  /// [B, Hq, own rows, Dv], once it is computed.
  const View<T>& out() const { return out_; }

  /// Computes it. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) { return far_.run(executor); }

 private:
  FarWeights<T> none_;
  Workspace memory_;
  View<T> out_;
  FarField<T, Field> far_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
