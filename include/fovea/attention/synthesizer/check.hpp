// SPDX-License-Identifier: MIT
/// \file
/// The checks that the forms of the Synthesizer share.
#pragma once

#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/synthesizer/tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// A tensor of weights must be there once, or for each sequence.
/// \throws std::invalid_argument
template <class U>
void check_weight_batch(const char* op, const char* tensor, const View<U>& x, Index batch) {
  if (x.batch() == 1 || x.batch() == batch) return;
  refuse_extent(op, tensor, x.shape(), 0, "1 or " + std::to_string(batch) + ", the batch of v");
}

/// The heads of a tensor must be a multiple of those of v.
/// \throws std::invalid_argument
template <class U, class V>
void check_head_groups(const char* op, const char* tensor, const View<U>& x, const View<V>& v) {
  if (v.heads() == 0 ? x.heads() == 0 : x.heads() % v.heads() == 0) return;
  refuse_extent(op, tensor, x.shape(), 1,
                "a multiple of " + std::to_string(v.heads()) + ", the heads of v");
}

/// Checks the key lengths, and that rows and widths are not beyond those of any tensor.
/// \throws std::invalid_argument, and as `isa_level`
template <class In>
void check_synthesizer_lengths(const char* op, const In& inputs) {
  static_cast<void>(isa_level());
  check_key_lengths(op, inputs.key_lengths, inputs.v.batch(), "v", inputs.v.rows(), "v");
  constexpr Index most_rows = (std::numeric_limits<Index>::max)() / 8;
  constexpr Index most_width = (std::numeric_limits<Index>::max)() / (Index{1} << 16);
  inputs.for_each_tensor([&](const char* name, const auto& x) {
    if (x.rows() > most_rows) {
      refuse_extent(op, name, x.shape(), 2, "at most " + std::to_string(most_rows));
    }
    if (x.width() > most_width) {
      refuse_extent(op, name, x.shape(), 3, "at most " + std::to_string(most_width));
    }
  });
}

/// Checks the output, and lse if it is to be saved.
/// \throws std::invalid_argument
template <class T, class In, class S>
void check_synthesizer_outputs(const char* op, const In& inputs, const View<T>& out,
                               const S& saved) {
  const Shape shape = out_shape(inputs);
  check_output(op, "out", out, inputs, shape);
  if (saved.lse.is_none()) return;
  check_output(op, "lse", saved.lse, inputs, {shape[0], shape[1], shape[2], 1});
  check_apart(op, "lse", saved.lse, "out", out);
}

/// Checks what a backward pass takes beside its inputs.
/// \throws std::invalid_argument
template <class T, class In, class S, class G>
void check_synthesizer_backward(const char* op, const In& inputs, const View<const T>& out,
                                const S& saved, const View<const T>& d_out, const G& grads) {
  const Shape shape = out_shape(inputs);
  check_made_shape(op, "out", out.shape(), shape);
  check_made_shape(op, "d_out", d_out.shape(), shape);
  const Shape rows = {shape[0], shape[1], shape[2], 1};
  if (!saved.lse.is_none()) {
    check_made_shape(op, "lse", saved.lse.shape(), rows);
  } else if (rows[0] * rows[1] * rows[2] != 0) {
    refuse_missing(op, "lse", "the lse that forward saved");
  }
  check_grads(op, inputs, out, saved, d_out, grads);
}

}  // namespace detail

FOVEA_NAMESPACE_END
