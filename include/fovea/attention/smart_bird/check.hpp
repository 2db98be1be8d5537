// SPDX-License-Identifier: MIT
/// \file
/// The checks of a sketch, and of the tensor for the keys that it chooses.
#pragma once

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/smart_bird/options.hpp"

FOVEA_NAMESPACE_BEGIN

/// \tparam T the type of the arithmetic
/// \throws std::invalid_argument if keys_per_row is below 1, search is not a valid value, or a
/// scale is not finite in T
template <class T>
void check_smart_bird_options(const char* op, const SmartBirdOptions& options) {
  if (options.keys_per_row < 1) {
    refuse(op, "keys_per_row", std::to_string(options.keys_per_row), "at least 1");
  }
  if (options.search > SketchSearch::blocks) {
    refuse(op, "search", std::to_string(static_cast<int>(options.search)),
           "automatic, exhaustive or blocks");
  }
  detail::check_scale<T>(op, "scale", options.scale);
  detail::check_scale<T>(op, "sketch_scale", options.sketch_scale);
}

/// Checks the sketch for that many query heads: shapes, key lengths, packed sequences and draws.
/// \throws std::invalid_argument
template <class T>
void check_sketch(const char* op, const SmartBirdOptions& options, const SketchInputs<T>& inputs,
                  Index heads) {
  const Shape& q = inputs.sketch_q.shape();
  const Shape& k = inputs.sketch_k.shape();
  const auto check_given = [&](const char* name, const auto& x) {
    if (x.empty() && heads > 0) refuse_missing(op, name, "[B, 1, N, d], of the sketch");
  };
  check_given("sketch_q", inputs.sketch_q);
  check_given("sketch_k", inputs.sketch_k);
  if (heads == 0) return;
  detail::check_extent(op, "sketch_q", q, 1, 1, "since all heads share the sketch");
  detail::check_extent(op, "sketch_k", k, 1, 1, "since all heads share the sketch");
  // The rules for q, k and v also hold for the sketch; these messages name its tensors.
  const LinearInputs<T> sketch = detail::tokens_of(inputs);
  detail::check_extent(op, "sketch_k", k, 0, q[0], "the batch of sketch_q");
  detail::check_extent(op, "sketch_k", k, 3, q[3], "the width of sketch_q");
  check_inputs(op, sketch);
  check_packing(op, sketch);
  check_first_positions(op, sketch);
  check_alignment(op, sketch, options.alignment, [&] { return options.causal; });
  if (inputs.draws.empty()) return;
  const Shape drawn = {q[0], heads, q[2], k[2]};
  for (std::size_t d = 0; d < 4; ++d) {
    detail::check_extent(op, "draws", inputs.draws.shape(), d, drawn[d], "one for each pair");
  }
}

/// Checks the inputs of Smart Bird attention.
/// \throws std::invalid_argument
template <class T>
void check_smart_bird_inputs(const char* op, const SmartBirdOptions& options,
                             const SmartBirdInputs<T>& inputs) {
  check_inputs(op, inputs);
  const Index heads = inputs.q.heads();
  check_packing(op, inputs);
  check_sketch(op, options, detail::sketch_of(inputs), heads);
  if (heads == 0) return;
  detail::check_extent(op, "sketch_q", inputs.sketch_q.shape(), 0, inputs.q.batch(),
                       "the batch of q");
  detail::check_extent(op, "sketch_q", inputs.sketch_q.shape(), 2, inputs.q.rows(),
                       "the rows of q");
  detail::check_extent(op, "sketch_k", inputs.sketch_k.shape(), 2, inputs.k.rows(),
                       "the rows of k");
}

/// Checks the options, inputs and outputs.
/// \throws std::invalid_argument
template <class T>
void check_smart_bird(const char* op, const SmartBirdOptions& options,
                      const SmartBirdInputs<T>& inputs, const View<T>& out,
                      const SmartBirdSaved<T>& saved) {
  check_smart_bird_options<Compute<T>>(op, options);
  check_smart_bird_inputs(op, options, inputs);
  check_outputs(op, inputs, out, saved, [&](std::string_view tensor) {
    return detail::row_shape(inputs, tensor == "lse" ? 1 : options.keys_per_row);
  });
}

FOVEA_NAMESPACE_END
