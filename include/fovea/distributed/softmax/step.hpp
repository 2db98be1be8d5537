// SPDX-License-Identifier: MIT
/// \file
/// The tensors of a distributed decoder step: some of their rows, and their description for the
/// collective check.
#pragma once

#include <string>

#include "fovea/attention/call/inputs.hpp"
#include "fovea/attention/call/saved.hpp"
#include "fovea/attention/call/shapes.hpp"
#include "fovea/attention/call/step_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The tensors of a step.
template <class T>
struct SoftmaxStep {
  SoftmaxInputs<T> inputs;  ///< q, new k and v, and the rest
  View<T> out;              ///< written
  SoftmaxSaved<T> saved;    ///< lse, written if given

  /// The step for some query rows, without new tokens.
  SoftmaxStep rows(Index first, Index count) const {
    SoftmaxStep made = *this;
    made.inputs.q = cut(inputs.q, first, count);
    made.inputs.k = made.inputs.v = {};
    made.inputs.bias = cut(inputs.bias, first, count);
    made.inputs.mask = cut(inputs.mask, first, count);
    made.out = cut(out, first, count);
    made.saved.lse = cut(saved.lse, first, count);
    return made;
  }

  /// The sizes other than the decoder's, as text.
  std::string text() const {
    std::string text(", new tokens ");
    text.append(std::to_string(fovea::detail::new_tokens(inputs)));
    if (!inputs.bias.empty()) text.append(", bias ").append(to_string(inputs.bias.shape()));
    if (!inputs.mask.empty()) text.append(", mask ").append(to_string(inputs.mask.shape()));
    if (!inputs.alibi_slopes.empty()) text.append(", ALiBi");
    if (!inputs.sink.empty()) text.append(", sinks");
    return text;
  }

 private:
  /// Some rows of a tensor; the whole tensor if it has a single broadcast row.
  template <class X>
  static View<X> cut(const View<X>& x, Index first, Index count) {
    if (x.rows() <= 1) return x;
    Shape shape = x.shape();
    shape[2] = count;
    X* const data = x.size() == 0 ? x.data() : x.data() + first * x.strides()[2];
    return View<X>(data, shape, x.strides());
  }
};

namespace detail {

/// The sizes of a decoder as text, equal on all ranks.
inline std::string sizes_text(const DecoderShape& shape) {
  const auto sizes = [&](Index heads, Index width) {
    std::string text = std::to_string(shape.batch);
    text.append("x").append(std::to_string(heads)).append("x");
    return text.append(std::to_string(width));
  };
  std::string text("q ");
  text.append(sizes(shape.query_heads, shape.width)).append(", k ");
  text.append(sizes(shape.key_heads, shape.width)).append(", v ");
  text.append(sizes(shape.key_heads, shape.value_width));
  return text.append(" (batch, heads, width)");
}

}  // namespace detail

}  // namespace distributed

FOVEA_NAMESPACE_END
