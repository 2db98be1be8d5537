// SPDX-License-Identifier: MIT
/// \file
/// The far field of a distributed forward pass: a scan if causal, otherwise totals.
#pragma once

#include <exception>
#include <optional>
#include <type_traits>

#include "fovea/distributed/linear/far_field_scan.hpp"
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
  FarField(const LinearFamilyInputs<T>& inputs, const Field& far_field,
           const FarWeights<T>& weights, bool has_near, const View<T>& out, const Sharding& rows,
           const ExecutorRef& executor) {
    if (far_field.causal) {
      scan_.emplace(inputs, far_field, weights, has_near, out, rows, executor);
    } else if constexpr (!Field::kHasDelta) {
      totals_.emplace(inputs, far_field, weights, has_near, out, rows, executor);
    }
  }
  FarField(const FarField&) = delete;
  FarField& operator=(const FarField&) = delete;

  /// Computes this rank's rows. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    if (scan_) return scan_->run(executor);
    if constexpr (!Field::kHasDelta) {
      if (totals_) return totals_->run(executor);
    }
    return nullptr;
  }

  /// This rank's communication statistics.
  CommStats comm_stats() const {
    if (scan_) return scan_->comm_stats();
    if constexpr (!Field::kHasDelta) {
      if (totals_) return totals_->comm_stats();
    }
    return {};
  }

 private:
  /// A placeholder for totals: the delta rule is causal.
  struct None {};

  std::optional<FarFieldScan<T, Field>> scan_;
  std::optional<std::conditional_t<Field::kHasDelta, None, FarFieldTotals<T, Field>>> totals_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
