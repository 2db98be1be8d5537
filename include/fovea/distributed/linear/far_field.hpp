// SPDX-License-Identifier: MIT
/// \file
/// The far field of a distributed forward pass: a scan if causal, otherwise totals.
#pragma once

#include <exception>
#include <optional>
#include <type_traits>

#include "fovea/distributed/linear/far_field_chain.hpp"
#include "fovea/distributed/linear/far_field_totals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The far field of one forward pass. \tparam Field a LinearTerms of T
template <class T, class Field>
class FarField {
 public:
  /// Allocates all memory.
  /// \param inputs of this rank's rows, checked   \param weights must outlive this object
  /// \param has_near whether to add to `out` instead of writing it
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  FarField(const LinearFamilyInputs<T>& inputs, const Field& far, const FarWeights<T>& weights,
           bool has_near, const View<T>& out, const Rows& rows, const ExecutorRef& executor) {
    if (far.causal) {
      chain_.emplace(inputs, far, weights, has_near, out, rows, executor);
    } else if constexpr (!Field::kHasDelta) {
      totals_.emplace(inputs, far, weights, has_near, out, rows, executor);
    }
  }
  FarField(const FarField&) = delete;
  FarField& operator=(const FarField&) = delete;

  /// Computes this rank's rows. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    if (chain_) return chain_->run(executor);
    if constexpr (!Field::kHasDelta) {
      if (totals_) return totals_->run(executor);
    }
    return nullptr;
  }

  /// This rank's communication statistics.
  Traffic traffic() const {
    if (chain_) return chain_->traffic();
    if constexpr (!Field::kHasDelta) {
      if (totals_) return totals_->traffic();
    }
    return {};
  }

 private:
  /// A placeholder for totals: the delta rule is causal.
  struct None {};

  std::optional<FarFieldChain<T, Field>> chain_;
  std::optional<std::conditional_t<Field::kHasDelta, None, FarFieldTotals<T, Field>>> totals_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
