// SPDX-License-Identifier: MIT
/// \file
/// The checks of one tensor that operators, layers and the cross share. Each refuses with
/// std::invalid_argument that names `where`, an operator or a layer, and the tensor.
#pragma once

#include <string>
#include <string_view>

#include "fovea/core/overlap.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Dimension d must be as expected; `whose` says where that comes from.
inline void check_extent(const char* where, const char* tensor, const Shape& shape, std::size_t d,
                         Index expected, std::string_view whose) {
  if (shape[d] == expected) return;
  refuse_extent(where, tensor, shape, d, std::to_string(expected).append(", ").append(whose));
}

/// All four must be.
inline void check_extents(const char* where, const char* tensor, const Shape& shape,
                          const Shape& expected, std::string_view whose) {
  for (std::size_t d = 0; d < 4; ++d) {
    check_extent(where, tensor, shape, d, expected[d], whose);
  }
}

/// What is written must give each element its own place.
template <class T>
void check_distinct(const char* where, const char* tensor, const View<T>& x) {
  if (has_distinct_elements(x)) return;
  refuse(where, std::string("the layout of ") + tensor,
         "strides " + to_string(x.strides()) + " for " + to_string(x.shape()),
         "strides that give each element its own place");
}

/// The same, and no stride may be negative.
template <class T>
void check_written_layout(const char* where, const char* tensor, const View<T>& x) {
  for (std::size_t d = 0; d < 4; ++d) {
    if (x.strides()[d] >= 0 || x.shape()[d] <= 1) continue;
    refuse(where, std::string("stride of ") + kDimensionNames[d] + " of " + tensor,
           std::to_string(x.strides()[d]), "at least 0 in a tensor that is written");
  }
  check_distinct(where, tensor, x);
}

/// x must share no element with another tensor.
template <class T, class U>
void check_apart(const char* where, const char* tensor, const View<T>& x, const char* name,
                 const View<U>& other) {
  if (!shares_elements(x, other)) return;
  refuse(where, tensor, std::string("in the memory of ") + name, "memory of its own");
}

}  // namespace detail

FOVEA_NAMESPACE_END
