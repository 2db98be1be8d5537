// SPDX-License-Identifier: MIT
/// \file
/// Included by linformer_backward.hpp, where it is documented.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/linformer/projection.hpp"
#include "fovea/distributed/linformer_backward.hpp"
#include "fovea/distributed/linformer_forward.inl.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/shared_rows/keys_backward.hpp"
#include "fovea/distributed/shared_rows/projection_scan.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass.
template <class T>
class LinformerBackwardPass final : public RankPass {
 public:
  /// Allocates all memory except that for rows with a large lse.
  /// \param inputs, out, saved, d_out, grads this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LinformerBackwardPass(const LinformerAttention& op, const LinformerInputs<T>& inputs,
                        const View<const T>& out, const LinformerSaved<T>& saved,
                        const View<const T>& d_out, const LinformerGrads<T>& grads,
                        const Sharding& rows, const ExecutorRef& executor)
      : inputs_(inputs),
        saved_(saved),
        grads_(grads),
        shape_(shape_of(inputs)),
        own_lengths_(own_lengths(inputs.key_lengths, rows)),
        keys_(made_shape(shape_.key_shape()), memory_of(executor)),
        values_(made_shape(shape_.value_shape()), memory_of(executor)),
        d_keys_(shape_.key_shape(), memory_of(executor)),
        d_values_(shape_.value_shape(), memory_of(executor)),
        attention_(SoftmaxInputs<T>{.q = inputs.q, .k = keys(), .v = values()}, options(op), out,
                   {saved.lse}, d_out, {grads.q, d_keys_.view(), d_values_.view()}, rows, executor),
        projection_(shape_, own_lengths_),
        scratch_(memory_of(executor).take(
            worker_count(executor, projection_.most_tasks()),
            LinformerProjection<T>::scratch_elements(shape_) * Index{sizeof(T)})) {
    if (!saved.has_projected()) scan_.emplace(inputs, rows, executor);
  }
  LinformerBackwardPass(const LinformerBackwardPass&) = delete;
  LinformerBackwardPass& operator=(const LinformerBackwardPass&) = delete;

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

  LinformerInputs<T> inputs_;
  LinformerSaved<T> saved_;
  LinformerGrads<T> grads_;
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
CommStats DistributedBackward<LinformerAttention, T>::backward(
    const LinformerAttention& op, const LinformerInputs<T>& inputs, const View<const T>& out,
    const LinformerSaved<T>& saved, const View<const T>& d_out, const LinformerGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  std::string text = detail::linformer_text(op, ".backward", inputs, rows);
  if (saved.has_projected()) text.append(", projected keys and values saved");
  return detail::run_call(
      rows, call, text,
      [&] {
        detail::check_call(op.name(), inputs, rows, [&](const LinformerInputs<T>& own) {
          op.check_backward(own, out, saved, d_out, grads);
        });
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<LinformerBackwardPass<T>>(op, inputs, out, saved, d_out, grads,
                                                          rows, threads);
      });
}

FOVEA_RANKS_PASSES(BACKWARD, LinformerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
