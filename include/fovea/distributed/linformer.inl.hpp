// SPDX-License-Identifier: MIT
/// \file
/// Included by linformer_forward.hpp, where it is documented.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/linformer/projection.hpp"
#include "fovea/attention/softmax/dense.hpp"
#include "fovea/distributed/linformer_forward.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/shared_rows/keys.hpp"
#include "fovea/distributed/shared_rows/projection_scan.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Describes the parts of a call that must be equal on all ranks.
template <class Call>
std::string linformer_text(const Call& call) {
  std::string text = call_text(call);
  const auto add = [&](const char* tensor, const auto& x) {
    text.append(", ").append(tensor).append(" ").append(std::to_string(x.heads()));
    text.append("x").append(std::to_string(x.rows()));
  };
  add("key_projection", call.inputs.key_projection);
  add("value_projection", call.inputs.value_projection);
  return text.append(" (heads, rows)");
}

}  // namespace detail

/// One forward pass.
template <class T>
class LinformerForwardPass final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param call checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LinformerForwardPass(const ShardedForwardCall<LinformerAttention, T>& call,
                       const ExecutorRef& executor)
      : saved_(call.saved),
        keys_(shape_of(call.inputs).key_shape(), memory_of(executor)),
        values_(shape_of(call.inputs).value_shape(), memory_of(executor)),
        scan_(call.inputs, call.rows, executor),
        attention_({.q = call.inputs.q, .k = keys_.view(), .v = values_.view()},
                   fovea::detail::logit_scale<T>(call.op.options.scale, call.inputs.q.width()),
                   call.out, saved_.lse) {
    attention_.reserve(executor);
  }

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
  const LinformerSaved<T>& saved_;
  ScratchTensor<T> keys_;
  ScratchTensor<T> values_;
  ProjectionScan<T> scan_;
  DenseForward<T> attention_;
};

template <std::floating_point T>
CommStats forward(const ShardedForwardCall<LinformerAttention, T>& call) {
  const auto check = [&] {
    detail::check_call(
        call, [&](const LinformerInputs<T>& own) { call.op.check(own, call.out, call.saved); });
  };
  return detail::run_call(call, detail::linformer_text(call), check,
                          [&](const ExecutorRef& threads) {
                            return std::make_unique<LinformerForwardPass<T>>(call, threads);
                          });
}

FOVEA_RANKS_PASSES(FORWARD, LinformerAttention)

/// One backward pass.
template <class T>
class LinformerBackwardPass final : public RankPass {
 public:
  /// Allocates all memory except that for rows with a large lse.
  /// \param call checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LinformerBackwardPass(const ShardedBackwardCall<LinformerAttention, T>& call,
                        const ExecutorRef& executor)
      : inputs_(call.inputs),
        saved_(call.saved),
        grads_(call.grads),
        shape_(shape_of(inputs_)),
        own_lengths_(own_lengths(inputs_.key_lengths, call.rows)),
        keys_(made_shape(shape_.key_shape()), memory_of(executor)),
        values_(made_shape(shape_.value_shape()), memory_of(executor)),
        d_keys_(shape_.key_shape(), memory_of(executor)),
        d_values_(shape_.value_shape(), memory_of(executor)),
        attention_(SoftmaxInputs<T>{.q = inputs_.q, .k = keys(), .v = values()}, options(call.op),
                   call.out, {saved_.lse}, call.d_out, {grads_.q, d_keys_.view(), d_values_.view()},
                   call.rows, executor),
        projection_(shape_, own_lengths_),
        scratch_(memory_of(executor).take(
            worker_count(executor, projection_.most_tasks()),
            LinformerProjection<T>::scratch_elements(shape_) * Index{sizeof(T)})) {
    if (!saved_.has_projected()) scan_.emplace(inputs_, call.rows, executor);
  }

  /// Writes the gradients of this rank's rows. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error;
    if (scan_) {
      error = scan_->run(executor);
      if (!error) scan_->write(keys_.view(), values_.view());
    }
    const std::exception_ptr later = attention_.run(executor);
    if (error || later) return error ? error : later;
    return fovea::detail::caught([&] { differentiate_projections(executor); });
  }

 private:
  /// The inputs of the softmax over projected keys.
  SoftmaxOptions options(const LinformerAttention& op) const {
    return {.scale =
                static_cast<double>(fovea::detail::logit_scale<T>(op.options.scale, shape_.width))};
  }

  /// The shape of a tensor that is computed if it was not saved, empty otherwise.
  Shape made_shape(const Shape& shape) const { return saved_.has_projected() ? Shape{} : shape; }
  View<const T> keys() {
    return saved_.has_projected() ? View<T>(saved_.projected_keys) : keys_.view();
  }
  View<const T> values() {
    return saved_.has_projected() ? View<T>(saved_.projected_values) : values_.view();
  }

  /// Writes the gradients of this rank's tokens and of its columns of E and F. \pre all ranks have
  /// those of the projected keys and values
  void differentiate_projections(const ExecutorRef& executor) {
    projection_.backward({LinformerProduct<T>{inputs_.key_projection, inputs_.k, View<T>(),
                                              d_keys_.view(), grads_.key_projection, grads_.k},
                          LinformerProduct<T>{inputs_.value_projection, inputs_.v, View<T>(),
                                              d_values_.view(), grads_.value_projection, grads_.v}},
                         scratch_.template data<T>(), executor);
  }

  const LinformerInputs<T>& inputs_;
  const LinformerSaved<T>& saved_;
  const LinformerGrads<T>& grads_;
  LinformerShape shape_;  // of this rank's rows
  std::vector<Index> own_lengths_;
  ScratchTensor<T> keys_;  // the projected keys and values, if they were not saved
  ScratchTensor<T> values_;
  ScratchTensor<T> d_keys_;
  ScratchTensor<T> d_values_;
  SharedKeysBackward<T> attention_;
  LinformerProjection<T> projection_;
  Workspace scratch_;                      // [workers]
  std::optional<ProjectionScan<T>> scan_;  // if they were not saved
};

template <std::floating_point T>
CommStats backward(const ShardedBackwardCall<LinformerAttention, T>& call) {
  std::string text = detail::linformer_text(call);
  if (call.saved.has_projected()) text.append(", projected keys and values saved");
  const auto check = [&] {
    detail::check_call(call, [&](const LinformerInputs<T>& own) {
      call.op.check_backward(own, call.out, call.saved, call.d_out, call.grads);
    });
  };
  return detail::run_call(call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<LinformerBackwardPass<T>>(call, threads);
  });
}

FOVEA_RANKS_PASSES(BACKWARD, LinformerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
