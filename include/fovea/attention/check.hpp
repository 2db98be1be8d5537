// SPDX-License-Identifier: MIT
/// \file
/// The checks that every operator makes of its tensors before anything is written.
#pragma once

#include <limits>
#include <string>
#include <string_view>

#include "fovea/attention/attention.hpp"
#include "fovea/core/overlap.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Refuses `tensor` unless its dimension d is as expected; `whose` says where that comes from.
inline void check_extent(const char* op, const char* tensor, const Shape& shape, std::size_t d,
                         Index expected, std::string_view whose) {
  if (shape[d] == expected) return;
  refuse(op, std::string(kDimensionNames[d]) + " of " + tensor, std::to_string(shape[d]),
         std::to_string(expected).append(", ").append(whose));
}

}  // namespace detail

/// q, k, v and the key lengths must agree. \throws std::invalid_argument
template <class T>
void check_inputs(const char* op, const Inputs<T>& inputs) {
  const Shape& q = inputs.q.shape();
  const Shape& k = inputs.k.shape();
  const Shape& v = inputs.v.shape();
  detail::check_extent(op, "k", k, 0, q[0], "the batch of q");
  detail::check_extent(op, "v", v, 0, q[0], "the batch of q");
  if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) {
    refuse(op, "heads of k", std::to_string(k[1]),
           "a divisor of " + std::to_string(q[1]) + ", the heads of q");
  }
  detail::check_extent(op, "v", v, 1, k[1], "the heads of k");
  detail::check_extent(op, "k", k, 3, q[3], "the width of q");
  detail::check_extent(op, "v", v, 2, k[2], "the rows of k");

  const auto lengths = static_cast<Index>(inputs.key_lengths.size());
  if (lengths != 0 && lengths != q[0]) {
    refuse(op, "the number of key_lengths", std::to_string(lengths),
           std::to_string(q[0]) + ", the batch of q, or 0");
  }
  for (std::size_t b = 0; b < inputs.key_lengths.size(); ++b) {
    const Index length = inputs.key_lengths[b];
    if (length < 0 || length > k[2]) {
      refuse(op, "key_lengths[" + std::to_string(b) + "]", std::to_string(length),
             "0 to " + std::to_string(k[2]) + ", the rows of k");
    }
  }
  // Positions are sums of row counts, and scratch is some hundred rows of q and v.
  constexpr Index most_rows = std::numeric_limits<Index>::max() / 8;
  constexpr Index most_width = std::numeric_limits<Index>::max() / (Index{1} << 16);
  for (const auto& [tensor, shape] : {std::pair{"q", q}, std::pair{"k", k}, std::pair{"v", v}}) {
    if (shape[2] > most_rows) {
      refuse(op, std::string("rows of ") + tensor, std::to_string(shape[2]),
             "at most " + std::to_string(most_rows));
    }
    if (shape[3] > most_width) {
      refuse(op, std::string("width of ") + tensor, std::to_string(shape[3]),
             "at most " + std::to_string(most_width));
    }
  }
}

/// What is written must have the shape, distinct elements, and share none with an input.
/// \throws std::invalid_argument
template <class T>
void check_output(const char* op, const char* tensor, const View<T>& x, const Inputs<T>& inputs,
                  const Shape& expected) {
  if (x.shape() != expected) {
    const std::string whose = "as the inputs make it " + to_string(expected);
    for (std::size_t d = 0; d < 4; ++d) {
      detail::check_extent(op, tensor, x.shape(), d, expected[d], whose);
    }
  }
  for (std::size_t d = 0; d < 4; ++d) {
    if (x.strides()[d] < 0 && x.shape()[d] > 1) {
      refuse(op, std::string("stride of ") + kDimensionNames[d] + " of " + tensor,
             std::to_string(x.strides()[d]), "at least 0 in a tensor that is written");
    }
  }
  if (!has_distinct_elements(x)) {
    refuse(op, std::string("the layout of ") + tensor,
           "strides " + to_string(x.strides()) + " for " + to_string(x.shape()),
           "strides that give each element its own place");
  }
  for (const auto& [name, input] :
       {std::pair{"q", &inputs.q}, std::pair{"k", &inputs.k}, std::pair{"v", &inputs.v}}) {
    if (shares_elements(x, *input)) {
      refuse(op, tensor, std::string("in the memory of ") + name, "memory of its own");
    }
  }
}

FOVEA_NAMESPACE_END
