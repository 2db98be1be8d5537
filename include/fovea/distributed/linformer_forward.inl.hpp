// SPDX-License-Identifier: MIT
/// \file
/// Included by linformer_forward.hpp, where it is documented.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/softmax/dense.hpp"
#include "fovea/distributed/linformer_forward.hpp"
#include "fovea/distributed/shared_rows/projection_scan.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Describes the parts of a call that must be equal on all ranks.
template <class T>
std::string linformer_text(const LinformerAttention& op, const char* pass,
                           const LinformerInputs<T>& in, const Sharding& rows) {
  std::string text = call_text(op.name(), pass, in, rows);
  const auto add = [&](const char* tensor, const View<const T>& x) {
    text.append(", ").append(tensor).append(" ").append(std::to_string(x.heads()));
    text.append("x").append(std::to_string(x.rows()));
  };
  add("key_projection", in.key_projection);
  add("value_projection", in.value_projection);
  return text.append(" (heads, rows)");
}

}  // namespace detail

/// One forward pass.
template <class T>
class LinformerForwardPass final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param inputs, out, saved this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LinformerForwardPass(const LinformerAttention& op, const LinformerInputs<T>& inputs,
                       const View<T>& out, const LinformerSaved<T>& saved, const Sharding& rows,
                       const ExecutorRef& executor)
      : saved_(saved),
        keys_(shape_of(inputs).key_shape(), memory_of(executor)),
        values_(shape_of(inputs).value_shape(), memory_of(executor)),
        scan_(inputs, rows, executor),
        attention_({.q = inputs.q, .k = keys_.view(), .v = values_.view()},
                   fovea::detail::logit_scale<T>(op.options.scale, inputs.q.width()), out,
                   saved.lse) {
    attention_.reserve(executor);
  }
  LinformerForwardPass(const LinformerForwardPass&) = delete;
  LinformerForwardPass& operator=(const LinformerForwardPass&) = delete;

  /// Computes this rank's rows. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    const std::exception_ptr error = scan_.run(executor);
    if (error) return error;
    return fovea::detail::caught([&] {
      scan_.write(keys_.view(), values_.view());
      attention_.compute(executor);
      scan_.write(saved_.projected_keys, saved_.projected_values);
    });
  }

 private:
  LinformerSaved<T> saved_;
  ScratchTensor<T> keys_;
  ScratchTensor<T> values_;
  ProjectionScan<T> scan_;
  DenseForward<T> attention_;
};

template <std::floating_point T>
CommStats DistributedForward<LinformerAttention, T>::forward(
    const LinformerAttention& op, const LinformerInputs<T>& inputs, const View<T>& out,
    const LinformerSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  return detail::run_call(
      rows, call, detail::linformer_text(op, ".forward", inputs, rows),
      [&] {
        detail::check_call(op.name(), inputs, rows,
                           [&](const LinformerInputs<T>& own) { op.check(own, out, saved); });
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<LinformerForwardPass<T>>(op, inputs, out, saved, rows, threads);
      });
}

FOVEA_RANKS_PASSES(FORWARD, LinformerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
