// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of linear, delta-rule and FMM attention across ranks.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <type_traits>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/fmm/near_field.hpp"
#include "fovea/distributed/linear/far_field.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass: the near field, if any, writes rows, and the far field adds to them.
/// \tparam Passes a LinearPasses or FmmPasses of float or double
template <class Passes>
class LinearForwardPass final : public RankPass {
 public:
  /// The tensors' scalar type.
  using T = typename Passes::Scalar;
  /// The settings read from the operator.
  using Settings = typename Passes::Settings;
  /// The state that the pass saves.
  using Saved = typename Passes::Saved;

  /// Allocates all memory.
  /// \param inputs, out, saved this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LinearForwardPass(const Settings& op, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                    const Saved& saved, const Sharding& rows, const ExecutorRef& executor)
      : out_(out), saved_(saved), weights_(op.weights(inputs)) {
    if constexpr (Settings::kHasNear) {
      near_.emplace(op.near_field(), ScoreModifierArgs<Compute<T>>{},
                    NearBlocks<T>::only_rows(inputs), out, SoftmaxSaved<T>{saved.near_lse}, rows);
      near_->reserve(executor);
    }
    far_ = far_field_pass(inputs, op.far_field, weights_, Settings::kHasNear, out, rows, executor);
  }

  /// Computes this rank's rows.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error;
    if constexpr (Settings::kHasNear) {
      error = near_->run(executor);
      if (!error) fovea::detail::copy_tensor<T>(out_, saved_.near_out);
    }
    const std::exception_ptr later = far_->run(executor);
    return error ? error : later;
  }

 private:
  /// A placeholder for a pass that the operator lacks.
  struct None {};

  View<T> out_;
  Saved saved_;
  FarWeights<T> weights_;
  std::optional<std::conditional_t<Settings::kHasNear, SoftmaxForwardPass<T>, None>> near_;
  std::unique_ptr<RankPass> far_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
