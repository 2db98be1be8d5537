// SPDX-License-Identifier: MIT
/// \file
/// The softmax that the forms of the Synthesizer have in common: full attention with the scale 1
/// over what they make of their inputs.
#pragma once

#include <algorithm>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/attention/synthesizer/check.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Full attention with the scale 1, under the name of a form of the Synthesizer.
template <class Form>
class SynthesizedSoftmax : public SoftmaxOperator<SynthesizedSoftmax<Form>> {
 public:
  /// What SoftmaxOperator reads.
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

  /// The plans of a call of this shape.
  HeadPlans plans(const AttentionShape& shape) const {
    return HeadPlans(*this, shape.query_heads,
                     SequenceShape::of(shape.queries, shape.keys, CausalAlignment::bottom_right));
  }

  /// Bytes of scratch memory of a forward pass.
  template <class T>
  Index forward_bytes(const AttentionShape& shape, Index workers) const {
    return SoftmaxForward<T>::workspace_bytes(shape, plans(shape), workers);
  }
  /// Bytes of scratch memory of a backward pass.
  template <class T>
  Index backward_bytes(const AttentionShape& shape, Index workers) const {
    return SoftmaxBackward<T>::workspace_bytes(shape, plans(shape), workers);
  }
};

/// The same weights for each of `batch` sequences.
template <class T>
View<const T> for_batch(const View<const T>& x, Index batch) {
  Shape shape = x.shape();
  Shape strides = x.strides();
  if (shape[0] == 1) strides[0] = 0;
  shape[0] = batch;
  return {x.data(), shape, strides};
}

/// Tensors [B, H, N, 0]: queries or keys without a width.
template <class T>
View<const T> no_width(Index batch, Index heads, Index rows) {
  return {nullptr, {batch, heads, rows, 0}, {0, 0, 0, 0}};
}

/// sum = the sum of x over its sequences, in order.
/// \param x [B, H, N, D], dense rows \param sum [1, H, N, D]
template <class T, class E>
void sum_batch(const View<const T>& x, const View<T>& sum, E&& executor) {
  constexpr Index rows = 64;
  const Index parts = (sum.rows() + rows - 1) / rows;
  for_each_task(executor, sum.heads() * parts, [&](Index task, Index) {
    const Index h = task / parts;
    const Index first = task % parts * rows;
    for (Index n = first; n < (std::min)(sum.rows(), first + rows); ++n) {
      for (Index d = 0; d < sum.width(); ++d) {
        T total = 0;
        for (Index b = 0; b < x.batch(); ++b) total += x(b, h, n, d);
        sum(0, h, n, d) = total;
      }
    }
  });
}

}  // namespace detail

FOVEA_NAMESPACE_END
