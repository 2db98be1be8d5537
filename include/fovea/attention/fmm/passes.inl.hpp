// SPDX-License-Identifier: MIT
/// \file
/// Included by passes.hpp, where it is documented.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/fmm/backward.hpp"
#include "fovea/attention/fmm/near_field.hpp"
#include "fovea/attention/fmm/passes.hpp"
#include "fovea/attention/linear/check.hpp"
#include "fovea/attention/linear/decoder_core.inl.hpp"
#include "fovea/attention/linear/forward.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// \throws std::invalid_argument if logits have the wrong shape or a NaN, or if rows are normalised
/// and all weights of a head are 0
template <class Settings, class T>
void check_logits(const Settings& op, const LinearFamilyInputs<T>& inputs) {
  check_blend_logits(op.name, "near_logits", inputs.near_logits, inputs);
  check_blend_logits(op.name, "far_logits", inputs.far_logits, inputs);
  if (!op.normalise_rows) return;
  const FmmBlend<T> blend = op.blend(inputs);
  for (Index h = 0; h < inputs.q.heads(); ++h) {
    for (Index c = 0; c < inputs.v.width(); ++c) {
      if (blend.normaliser(h, c) > 0) continue;
      refuse(op.name, "the blend weights of head " + std::to_string(h) + " are all 0",
             "expected one above 0, since normalise_rows is set");
    }
  }
}

/// The shape of a saved tensor of this name.
template <class T>
Shape near_shape(const LinearFamilyInputs<T>& inputs, std::string_view tensor) {
  return tensor == "near_out" ? out_shape(inputs) : row_shape(inputs);
}

/// A copy of a tensor in the type of the arithmetic.
template <class T>
class Widened {
 public:
  /// Copies the tensor, if there is one.
  explicit Widened(const View<const T>& x) : shape_(x.shape()), empty_(x.empty()) {
    if (empty_) return;
    numbers_.reserve(static_cast<std::size_t>(x.size()));
    for (Index b = 0; b < x.batch(); ++b) {
      for (Index h = 0; h < x.heads(); ++h) {
        for (Index n = 0; n < x.rows(); ++n) {
          for (Index c = 0; c < x.width(); ++c) {
            numbers_.push_back(static_cast<Compute<T>>(x(b, h, n, c)));
          }
        }
      }
    }
  }
  /// The copy.
  View<const Compute<T>> view() const {
    return empty_ ? View<const Compute<T>>{} : View<const Compute<T>>(numbers_.data(), shape_);
  }

 private:
  Shape shape_;
  bool empty_;
  std::vector<Compute<T>> numbers_;
};

/// Passes a step's tokens to the near field's decoder and computes its rows.
template <class Near, class C, class T>
void step_near(Near& near_field, const SoftmaxInputs<C>& inputs, const View<C>& out,
               const FmmSaved<T>& saved, Index rows, const ExecutorRef& executor) {
  if (rows == 0) {
    if (!inputs.k.empty()) near_field.append(inputs.k, inputs.v);
    return;
  }
  near_field.step(inputs, out, SoftmaxSaved<C>{saved.near_lse}, executor);
  copy_tensor<C>(out, saved.near_out);
}

}  // namespace detail

template <class T, bool kSums, bool kDelta>
void FmmPasses<T, kSums, kDelta>::check_options(const Settings& op) {
  check_window(op.name, {op.band.left, op.band.right});
  check_softmax_options<C>(op.name, op.near_field().softmax_options());
  check_denominator<C>(op.name, op.far_field.denominator);
  if (kDelta && !op.far_field.causal) {
    refuse(op.name, "causal", "false", "true: the delta rule is causal");
  }
}

template <class T, bool kSums, bool kDelta>
void FmmPasses<T, kSums, kDelta>::check_read(const Settings& op,
                                             const LinearFamilyInputs<T>& inputs) {
  check_options(op);
  check_far_inputs(op, inputs);
  detail::check_logits(op, inputs);
}

template <class T, bool kSums, bool kDelta>
void FmmPasses<T, kSums, kDelta>::check(const Settings& op, const LinearFamilyInputs<T>& inputs,
                                        const View<T>& out, const Saved& saved) {
  check_read(op, inputs);
  check_outputs(op.name, inputs, out, saved,
                [&](std::string_view tensor) { return detail::near_shape(inputs, tensor); });
}

template <class T, bool kSums, bool kDelta>
void FmmPasses<T, kSums, kDelta>::forward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                                          const View<T>& out, const Saved& saved,
                                          const ExecutorRef& executor) {
  const ExecutorRef threads = for_work(executor, [&] { return op.products(shape_of(inputs)); });
  const FarWeights<C> weights = op.weights(inputs);
  LinearForward(inputs, op.far_field, weights, out, NearBlocks<T>(inputs, op.near_field(), saved))
      .run(threads);
}

template <class T, bool kSums, bool kDelta>
void FmmPasses<T, kSums, kDelta>::step_near(NearDecoder& near_field,
                                            const LinearFamilyInputs<T>& inputs, const View<T>& out,
                                            const Saved& saved, Index rows, C* wide,
                                            const ExecutorRef& executor) {
  if constexpr (std::same_as<T, C>) {
    detail::step_near(near_field, detail::inputs_as<SoftmaxInputs<T>>(inputs), out, saved, rows,
                      executor);
  } else {
    // The ring stores the type of the arithmetic, which represents all 16-bit numbers exactly.
    const detail::Widened<T> q(inputs.q), k(inputs.k), v(inputs.v);
    const Index heads = out.heads();
    const Index row = padded_row<C>(out.width());
    const View<C> to(wide, {out.batch(), heads, rows, out.width()},
                     {heads * rows * row, rows * row, row, 1});
    detail::step_near(near_field, SoftmaxInputs<C>{q.view(), k.view(), v.view()}, to, saved, rows,
                      executor);
  }
}

template <class T, bool kSums, bool kDelta>
void FmmBackwardPasses<T, kSums, kDelta>::check(const Settings& op,
                                                const LinearFamilyInputs<T>& inputs,
                                                const View<const T>& out, const FmmSaved<T>& saved,
                                                const View<const T>& d_out,
                                                const LinearFamilyGrads<T>& grads) {
  FmmPasses<T, kSums, kDelta>::check_read(op, inputs);
  check_rows(op.name, "out", inputs, out);
  check_rows(op.name, "d_out", inputs, d_out);
  saved.for_each_tensor([&](const char* tensor, const auto& x) {
    if (x.empty()) return;
    detail::check_made_shape(op.name, tensor, x.shape(), detail::near_shape(inputs, tensor));
  });
  check_grads(op.name, inputs, out, saved, d_out, grads);
}

template <class T, bool kSums, bool kDelta>
void FmmBackwardPasses<T, kSums, kDelta>::backward(
    const Settings& op, const LinearFamilyInputs<T>& inputs, const FmmSaved<T>& saved,
    const View<const T>& d_out, const LinearFamilyGrads<T>& grads, const ExecutorRef& executor) {
  const ExecutorRef threads =
      for_work(executor, [&] { return 2.5 * op.products(shape_of(inputs)); });
  const LocalAttention near_field = op.near_field();
  const FmmBlend<T> blend = op.blend(inputs);
  FmmBackward(inputs, op.far_field, near_field, blend, saved, d_out, grads).run(threads);
}

// An operator's terms are summed, written by the delta rule, or both.
#define FOVEA_FMM_PASSES(Class, T)      \
  template class Class<T, true, false>; \
  template class Class<T, false, true>; \
  template class Class<T, true, true>;
#define FOVEA_FMM_FORWARD(Class, T)                        \
  FOVEA_FMM_PASSES(Class, T)                               \
  template class LinearDecoderCore<Class<T, true, false>>; \
  template class LinearDecoderCore<Class<T, false, true>>; \
  template class LinearDecoderCore<Class<T, true, true>>;
FOVEA_IN_FLOAT_UNIT(FOVEA_FMM_FORWARD, FmmPasses)
FOVEA_IN_DOUBLE_UNIT(FOVEA_FMM_FORWARD, FmmPasses)
FOVEA_IN_SHORT_UNIT(FOVEA_FMM_FORWARD, FmmPasses)
FOVEA_IN_FLOAT_UNIT(FOVEA_FMM_PASSES, FmmBackwardPasses)
FOVEA_IN_DOUBLE_UNIT(FOVEA_FMM_PASSES, FmmBackwardPasses)

FOVEA_NAMESPACE_END
