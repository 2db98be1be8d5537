// SPDX-License-Identifier: MIT
/// \file
/// The checks that the forms of the Synthesizer share.
#pragma once

#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/synthesizer/tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Checks that weights are given once, or for each sequence.
/// \throws std::invalid_argument
template <class U>
void check_weight_batch(const char* op, const char* tensor, const View<U>& x, Index batch) {
  if (x.batch() == 1 || x.batch() == batch) return;
  refuse_extent(op, tensor, x.shape(), 0, "1 or " + std::to_string(batch) + ", the batch of v");
}

/// Checks that the number of heads of a tensor is a multiple of that of v.
/// \throws std::invalid_argument
template <class U, class V>
void check_head_groups(const char* op, const char* tensor, const View<U>& x, const View<V>& v) {
  if (v.heads() == 0 ? x.heads() == 0 : x.heads() % v.heads() == 0) return;
  refuse_extent(op, tensor, x.shape(), 1,
                "a multiple of " + std::to_string(v.heads()) + ", the heads of v");
}

/// Checks the key lengths, and that rows and widths are within the limits for tensors.
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

}  // namespace detail

FOVEA_NAMESPACE_END
