// SPDX-License-Identifier: MIT
/// \file
/// The checks of Reformer attention.
#pragma once

#include <limits>
#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/reformer/options.hpp"

FOVEA_NAMESPACE_BEGIN

/// The largest number of rows, and of buckets, of Reformer attention.
inline constexpr Index kMostSortedRows = (std::numeric_limits<std::int32_t>::max)() / 4;

/// Checks the options and the number of rows of a sequence.
/// \tparam T the type of the arithmetic
/// \throws std::invalid_argument
template <class T>
void check_reformer_options(const char* op, const ReformerOptions& options, Index rows) {
  if (rows > kMostSortedRows) {
    refuse(op, "qk has " + std::to_string(rows) + " rows",
           "expected at most " + std::to_string(kMostSortedRows));
  }
  detail::check_scale<T>(op, "scale", options.scale);
  if (options.chunk < 1 || rows % options.chunk != 0) {
    refuse(op, "chunk", std::to_string(options.chunk),
           "a divisor of the " + std::to_string(rows) + " rows of qk");
  }
  if (options.rounds < 1) refuse(op, "rounds", std::to_string(options.rounds), "at least 1");
  if (options.buckets < 2 || options.buckets % 2 != 0 || options.buckets > kMostSortedRows) {
    refuse(op, "buckets", std::to_string(options.buckets),
           "an even number from 2 to " + std::to_string(kMostSortedRows));
  }
}

/// Checks the options and inputs of Reformer attention.
/// \throws std::invalid_argument
template <class T>
void check_reformer_inputs(const char* op, const ReformerOptions& options,
                           const ReformerInputs<T>& inputs) {
  static_cast<void>(isa_level());
  const Shape& qk = inputs.qk.shape();
  const Shape& v = inputs.v.shape();
  if (inputs.qk.empty() && v[0] != 0) refuse_missing(op, "qk");
  constexpr std::array<const char*, 3> whose = {"the batch of qk", "the heads of qk",
                                                "the rows of qk"};
  for (std::size_t d = 0; d < 3; ++d) detail::check_extent(op, "v", v, d, qk[d], whose[d]);
  detail::check_key_lengths(op, inputs.key_lengths, qk[0], "qk", qk[2], "qk");
  constexpr Index most_width = (std::numeric_limits<Index>::max)() / (Index{1} << 20);
  for (const auto& [tensor, width] : {std::pair{"qk", qk[3]}, std::pair{"v", v[3]}}) {
    if (width <= most_width) continue;
    refuse(op, std::string(tensor) + " has width " + std::to_string(width),
           "expected at most " + std::to_string(most_width));
  }
  check_reformer_options<T>(op, options, qk[2]);
  const Shape& w = inputs.projection.shape();
  if (inputs.projection.empty()) return;
  detail::check_extent(op, "projection", w, 0, 1, "since all sequences use the same projections");
  detail::check_extent(op, "projection", w, 1, options.rounds, "the rounds of the options");
  detail::check_extent(op, "projection", w, 2, qk[3], "the width of qk");
  detail::check_extent(op, "projection", w, 3, options.buckets / 2,
                       "half of the buckets of the options");
}

FOVEA_NAMESPACE_END
