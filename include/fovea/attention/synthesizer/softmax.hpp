// SPDX-License-Identifier: MIT
/// \file
/// The softmax that the forms of the Synthesizer share: full attention with scale 1.
#pragma once

#include <algorithm>
#include <optional>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/attention/synthesizer/tensors.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Full attention with the scale 1, under the name of a form of the Synthesizer.
template <class Form>
class SynthesizedSoftmax : public SoftmaxOperator<SynthesizedSoftmax<Form>> {
 public:
  /// Members that SoftmaxOperator requires.
  struct Options {
    bool causal = false;
    std::optional<double> scale = 1;
  };
  Options options;

  explicit SynthesizedSoftmax(const SynthesizerOptions& chosen) : options{chosen.causal} {}

  static constexpr const char* name() { return Form::name(); }
  static constexpr bool kPatternKnowsShape = false;

  Window pattern(Index /*head*/, const SequenceShape& /*shape*/) const {
    Window seen;
    if (options.causal) seen.right = 0;
    return seen;
  }

  void check_options() const {}
};

/// Extents [first, first + count) of dimension d of a view.
template <class U>
View<U> part_of(const View<U>& x, std::size_t d, Index first, Index count) {
  Shape shape = x.shape();
  shape[d] = count;
  const bool is_empty = x.size() == 0 || count == 0;
  return {is_empty ? x.data() : x.data() + first * x.strides()[d], shape, x.strides()};
}

/// Weights broadcast to `batch` sequences.
template <class T>
View<const T> for_batch(const View<const T>& x, Index batch) {
  Shape shape = x.shape();
  Shape strides = x.strides();
  if (shape[0] == 1) strides[0] = 0;
  shape[0] = batch;
  return {x.data(), shape, strides};
}

/// Tensors [B, H, N, 0]: queries or keys of width 0.
template <class T>
View<const T> no_width(Index batch, Index heads, Index rows) {
  return {nullptr, {batch, heads, rows, 0}, {0, 0, 0, 0}};
}

/// The gradient of weights: the sum over the sequences if they share the weights.
template <class T>
class BatchSum {
 public:
  /// \param grad [1 or B, H, N, D], or empty   \param memory the call's (memory_of)
  /// \throws std::bad_alloc
  BatchSum(const View<T>& grad, Index batch, ExecutorRef::Memory memory)
      : grad_(grad), batch_(batch) {
    if (!is_summed()) return;
    room_ = memory.take(batch * grad.heads(), grad.rows() * grad.width() * Index{sizeof(T)});
  }

  /// Where the gradients of the sequences are written, [B, H, N, D].
  View<T> of_sequences() {
    if (!is_summed()) return grad_;
    return {room_.template data<T>(), {batch_, grad_.heads(), grad_.rows(), grad_.width()}};
  }

  /// Adds the sequences' gradients, in order.
  void finish(const ExecutorRef& executor) {
    if (!is_summed()) return;
    constexpr Index rows = 64;
    const Index parts = (grad_.rows() + rows - 1) / rows;
    const View<T> x = of_sequences();
    for_each_task(executor, grad_.heads() * parts, [&](Index task, Index) {
      const Index h = task / parts;
      const Index first = task % parts * rows;
      for (Index n = first; n < (std::min)(grad_.rows(), first + rows); ++n) {
        for (Index d = 0; d < grad_.width(); ++d) {
          T total = 0;
          for (Index b = 0; b < batch_; ++b) total += x(b, h, n, d);
          grad_(0, h, n, d) = total;
        }
      }
    });
  }

 private:
  bool is_summed() const { return !grad_.empty() && grad_.batch() != batch_; }

  View<T> grad_;
  Index batch_;
  Workspace room_;  // empty unless the gradient is a sum
};

}  // namespace detail

FOVEA_NAMESPACE_END
