// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Linformer attention over a sequence that is spread over ranks. Rows stay
/// where they are; what travels is the projected keys and values, and rows where ranges end within
/// a chain of kChain tokens.
#pragma once

#include <concepts>
#include <exception>
#include <memory>
#include <string>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/linformer.hpp"
#include "fovea/attention/softmax/dense.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/shared_rows/projection_chain.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// What is the same on all ranks of a call, in words.
template <class T>
std::string linformer_text(const LinformerAttention& op, const char* pass,
                           const LinformerInputs<T>& in, const Rows& rows) {
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
class LinformerForwardPass {
 public:
  /// Takes all memory.
  /// \param inputs, out, saved those of this rank, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LinformerForwardPass(const LinformerAttention& op, const LinformerInputs<T>& inputs,
                       const View<T>& out, const LinformerSaved<T>& saved, const Rows& rows,
                       const ExecutorRef& executor)
      : saved_(saved),
        keys_(shape_of(inputs).key_shape(), memory_of(executor)),
        values_(shape_of(inputs).value_shape(), memory_of(executor)),
        chain_(inputs, rows, executor),
        attention_({.q = inputs.q, .k = keys_.view(), .v = values_.view()},
                   fovea::detail::logit_scale<T>(op.options.scale, inputs.q.width()), out,
                   saved.lse) {
    attention_.reserve(executor);
  }
  LinformerForwardPass(const LinformerForwardPass&) = delete;
  LinformerForwardPass& operator=(const LinformerForwardPass&) = delete;

  /// The messages of this rank.
  Traffic traffic() const { return chain_.traffic(); }

  /// Computes this rank's rows. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    const std::exception_ptr error = chain_.run(executor);
    if (error) return error;
    return fovea::detail::caught([&] {
      chain_.write(keys_.view(), values_.view());
      attention_.compute(executor);
      chain_.write(saved_.projected_keys, saved_.projected_values);
    });
  }

 private:
  LinformerSaved<T> saved_;
  ScratchTensor<T> keys_;
  ScratchTensor<T> values_;
  ProjectionChain<T> chain_;
  DenseForward<T> attention_;
};

/// Computes Linformer attention over a sequence that is spread over ranks, on all of them together;
/// every rank calls it with its own rows. The bits are those of `op.forward` over the whole
/// sequence, for any number of ranks and any layout.
/// \param inputs q, k and v of this rank's rows, [B, H, own rows, D] in ascending order, and the
/// columns of E and F that these meet, [1, 1 or Hk, P, own rows], with all rows P even where a rank
/// has no tokens; key lengths count tokens of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse of the rank's rows; the projected keys and values, which all ranks have whole.
/// The ranks may save different ones
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows. The projected keys and values, B Hk P (D + Dv) numbers, are sent
/// at each end of a range of rows, up to 64 rows of some heads at a time, and then to all ranks;
/// ranks wait for each other unless there are many more such parts than a rank has threads. Where a
/// range does not begin at a multiple of kChain, fewer rows than that travel, with their columns of
/// E and F. Memory: twice the projected keys and values, and what travels.
template <class Out, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic forward(const LinformerAttention& op,
                                                const InputsOf<LinformerAttention, T>& inputs,
                                                Out&& out,
                                                const SavedOf<LinformerAttention, T>& saved,
                                                const Rows& rows, E&& executor = {}) {
  const View<T> to(out);
  return detail::run_call(
      rows, op, detail::linformer_text(op, ".forward", inputs, rows),
      [&] {
        detail::check_call(op.name(), inputs, rows,
                           [&](const LinformerInputs<T>& own) { op.check(own, to, saved); });
      },
      executor,
      [&](auto& threads) {
        return std::make_unique<LinformerForwardPass<T>>(op, inputs, to, saved, rows, threads);
      });
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic forward(const LinformerAttention& op,
                                                const InputsOf<LinformerAttention, T>& inputs,
                                                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), LinformerSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
