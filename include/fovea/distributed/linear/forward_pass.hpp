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
/// \tparam Passes a LinearPasses or FmmPasses of float or double; PerformerPasses have a
/// specialisation
template <class Passes>
class LinearForwardPass final : public RankPass {
 public:
  /// The tensors' scalar type.
  using T = typename Passes::Scalar;
  /// The settings read from the operator.
  using Settings = typename Passes::Settings;

  /// Allocates all memory.
  /// \param call the FarFieldForwardCall, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class Call>
  LinearForwardPass(const Call& call, const ExecutorRef& executor)
      : out_(call.out), saved_(call.saved), weights_(call.op.weights(call.inputs)) {
    if constexpr (Settings::kHasNear) {
      near_.emplace(call.op.near_field(), ScoreModifierArgs<Compute<T>>{},
                    NearBlocks<T>::only_rows(call.inputs), call.out,
                    SoftmaxSaved<T>{call.saved.near_lse}, call.rows);
      near_->reserve(executor);
    }
    far_ = far_field_pass(call.inputs, call.op.far_field, weights_, Settings::kHasNear, call.out,
                          call.rows, executor);
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

  const View<T>& out_;
  const typename Passes::Saved& saved_;
  FarWeights<T> weights_;
  std::optional<std::conditional_t<Settings::kHasNear, SoftmaxForwardPass<T>, None>> near_;
  std::unique_ptr<RankPass> far_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
