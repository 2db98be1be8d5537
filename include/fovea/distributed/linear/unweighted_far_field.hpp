// SPDX-License-Identifier: MIT
/// \file
/// The far field that a backward pass over ranks computes again, without weights, where columns of
/// a blend have logits of their own.
#pragma once

#include <exception>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/linear/far_field.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The far field of this rank's rows, in memory of its own. \tparam Field a LinearTerms of T
template <class T, class Field>
class UnweightedFarField {
 public:
  /// Takes all memory.
  /// \param inputs of this rank's rows, checked   \param shaped any tensor of the output's shape
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  UnweightedFarField(const LinearFamilyInputs<T>& inputs, const Field& far,
                     const View<const T>& shaped, const Rows& rows, const ExecutorRef& executor)
      : memory_(memory_of(executor).take(
            shaped.batch() * shaped.heads() * shaped.rows() * shaped.width(), Index{sizeof(T)})),
        out_(memory_.template data<T>(),
             {shaped.batch(), shaped.heads(), shaped.rows(), shaped.width()}),
        far_(inputs, far, none_, false, out_, rows, executor) {}
  UnweightedFarField(const UnweightedFarField&) = delete;
  UnweightedFarField& operator=(const UnweightedFarField&) = delete;

  /// The messages of this rank.
  Traffic traffic() const { return far_.traffic(); }
  /// [B, Hq, own rows, Dv], once it is computed.
  const View<T>& out() const { return out_; }

  /// Computes it. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) { return far_.run(executor); }

 private:
  FarWeights<T> none_;
  Workspace memory_;
  View<T> out_;
  FarField<T, Field> far_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
