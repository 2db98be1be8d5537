// SPDX-License-Identifier: MIT
/// \file
/// Checks of a single tensor, shared by operators, layers and the Fourier cross. A failing check
/// throws std::invalid_argument, naming the tensor and `where`, an operator or layer.
#pragma once

#include <string>
#include <string_view>

#include "fovea/core/index_span.hpp"
#include "fovea/core/overlap.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The extent of dimension d must be as expected; `whose` is the reason, for the message.
FOVEA_COLD inline void check_extent(const char* where, const char* tensor, const Shape& shape,
                                    std::size_t d, Index expected, std::string_view whose) {
  if (shape[d] == expected) return;
  refuse_extent(where, tensor, shape, d, std::to_string(expected).append(", ").append(whose));
}

/// All four extents must be as expected. The message about a tensor of no extents, such as an
/// Eigen tensor before resize, says that it has no memory.
FOVEA_COLD inline void check_extents(const char* where, const char* tensor, const Shape& shape,
                                     const Shape& expected, std::string_view whose) {
  if (shape == expected) return;
  refuse(where,
         std::string(tensor).append(shape == Shape{} ? " is empty: it was passed without memory"
                                                     : " has shape " + to_string(shape)),
         "expected " + to_string(expected).append(", ").append(whose));
}

/// Key lengths must be absent, or one for each of `batch` sequences, in [0, rows].
/// \param x the tensor that has that batch   \param y the tensor that has those rows
FOVEA_COLD inline void check_key_lengths(const char* where, IndexSpan lengths, Index batch,
                                         const char* x, Index rows, const char* y) {
  const auto count = static_cast<Index>(lengths.size());
  if (count != 0 && count != batch) {
    refuse(where, "the number of key_lengths", std::to_string(count),
           std::to_string(batch) + ", the batch of " + x + ", or 0");
  }
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] >= 0 && lengths[b] <= rows) continue;
    refuse(where, "key_lengths[" + std::to_string(b) + "]", std::to_string(lengths[b]),
           range_text<Index>(0, rows) + ", the rows of " + y);
  }
}

/// Each element of a tensor that is written must have its own address.
FOVEA_COLD inline void check_distinct(const char* where, const char* tensor,
                                      const TensorLayout& x) {
  if (has_distinct_elements(x)) return;
  std::string strides;
  for (const Index stride : x.strides) {
    strides.append(strides.empty() ? "[" : ", ").append(std::to_string(stride));
  }
  refuse(where, tensor + (" has strides " + strides) + "] for " + to_string(x.shape),
         "the elements of an output need different addresses");
}

/// A tensor that is written must pass check_distinct and have no negative stride.
FOVEA_COLD inline void check_written_layout(const char* where, const char* tensor,
                                            const TensorLayout& x) {
  for (std::size_t d = 0; d < 4; ++d) {
    if (x.strides[d] >= 0 || x.shape[d] <= 1) continue;
    refuse(where, std::string("stride of ") + kDimensionNames[d] + " of " + tensor,
           std::to_string(x.strides[d]), "at least 0 in an output");
  }
  check_distinct(where, tensor, x);
}

/// x must share no element with the tensor called `name`.
FOVEA_COLD inline void check_apart(const char* where, const char* tensor, const TensorLayout& x,
                                   const char* name, const TensorLayout& other) {
  if (!shares_elements(x, other)) return;
  refuse(where, std::string(tensor) + " overlaps " + name,
         "outputs must not alias inputs or each other");
}

}  // namespace detail

FOVEA_NAMESPACE_END
