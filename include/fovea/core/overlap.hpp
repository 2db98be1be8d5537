// SPDX-License-Identifier: MIT
/// \file
/// Whether two views share an element, and whether a view's elements are distinct. Both are decided
/// from the strides, in O(1).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

/// A tensor's memory layout without its type, so that the checks of tensors need not be templates.
struct TensorLayout {
  const void* data = nullptr;  ///< element [0, 0, 0, 0]
  Shape shape = {};            ///< the four extents
  Shape strides = {};          ///< the four strides, in elements
  Index element_size = 1;      ///< bytes

  /// No tensor.
  TensorLayout() = default;
  /// The layout of a view.
  template <class T>
  // NOLINTNEXTLINE(google-explicit-constructor): every view has a layout
  TensorLayout(const View<T>& x)
      : data(x.data()), shape(x.shape()), strides(x.strides()), element_size(sizeof(T)) {}

  /// Whether the view has no tensor.
  bool empty() const { return data == nullptr && shape == Shape{}; }
  /// Whether there are no elements.
  bool is_empty() const { return shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0; }
};

namespace detail {

/// One term of a sum of offsets: a stride > 0 times 0 to count - 1.
struct Term {
  Index stride;
  Index count;
};

/// Holds one term for each dimension of two views.
using Terms = std::array<Term, 8>;

/// The absolute stride of a dimension. It is 0 for a dimension of extent 1, whose stride is never
/// used.
inline Index step_of(Index stride, Index extent) { return extent == 1 ? 0 : std::abs(stride); }

/// a + b, or the largest Index if the sum does not fit. \pre b >= 0
inline Index saturated_sum(Index a, Index b) {
  constexpr Index most = (std::numeric_limits<Index>::max)();
  return a > most - b ? most : a + b;
}

/// Whether the terms t to n - 1 can have the sum `target`. They are in descending order of stride.
/// Of each term only the counts that leave a remainder within reach of the later terms are tried;
/// for nested layouts these are one or two. `steps` bounds the work: when it runs out, the answer
/// is conservatively yes.
FOVEA_COLD inline bool reaches(const Terms& terms, std::size_t t, std::size_t n, Index target,
                               int& steps) {
  if (--steps < 0) return true;
  if (t == n) return target == 0;
  Index rest = 0;
  for (std::size_t i = t + 1; i < n; ++i) rest += terms[i].stride * (terms[i].count - 1);
  const auto [stride, count] = terms[t];
  const Index missing = target - rest;
  for (Index c = missing <= 0 ? 0 : (missing - 1) / stride + 1; c < count && c * stride <= target;
       ++c) {
    if (reaches(terms, t + 1, n, target - c * stride, steps)) return true;
  }
  return false;
}

/// Inserts a term into the first n, which stay in descending order of stride. Terms of equal stride
/// are merged.
FOVEA_COLD inline void add_term(Terms& terms, std::size_t& n, Index stride, Index count) {
  if (stride == 0 || count == 1) return;
  std::size_t at = 0;
  while (at < n && terms[at].stride > stride) ++at;
  if (at < n && terms[at].stride == stride) {
    terms[at].count += count - 1;
    return;
  }
  for (std::size_t i = n++; i > at; --i) terms[i] = terms[i - 1];
  terms[at] = {stride, count};
}

/// The addresses from the lowest element of a tensor to the end of its highest one, cut to the
/// range of std::intptr_t.
FOVEA_COLD inline std::pair<std::intptr_t, std::intptr_t> byte_range(const TensorLayout& x) {
  const auto first = reinterpret_cast<std::intptr_t>(x.data);
  Index low = 0;  // how far elements reach below data
  Index high = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    const Index reach = step_of(x.strides[d], x.shape[d]) * (x.shape[d] - 1);
    (x.strides[d] < 0 ? low : high) += reach;
  }
  constexpr auto least = (std::numeric_limits<std::intptr_t>::min)();
  const bool begins_before = first < least + low * x.element_size;
  return {begins_before ? least : first - low * x.element_size,
          saturated_sum(saturated_sum(first, high * x.element_size), x.element_size)};
}

}  // namespace detail

/// Whether \p a and \p b share an element. The answer is exact for layouts whose strides nest. It
/// is conservatively yes for views whose interleaving takes more than a few thousand steps to
/// decide, for views whose extents in memory add up to more than Index holds, and for views with
/// elements of different sizes if their address ranges meet.
FOVEA_COLD inline bool shares_elements(const TensorLayout& a, const TensorLayout& b) {
  if (a.is_empty() || b.is_empty()) return false;
  if (a.element_size != b.element_size) {
    const auto [a_begin, a_end] = detail::byte_range(a);
    const auto [b_begin, b_end] = detail::byte_range(b);
    return a_begin < b_end && b_begin < a_end;
  }
  const auto address_a = reinterpret_cast<std::uintptr_t>(a.data);
  const auto address_b = reinterpret_cast<std::uintptr_t>(b.data);
  // The views share an element if an element of a and one of b can have the same address. All terms
  // are moved to one side of that equation. A dimension whose term would be negative there is
  // counted from its end, which adds its extent in memory to `offset`.
  auto bytes = static_cast<std::intptr_t>(address_b - address_a);
  Index offset = 0;
  Index reach = 0;  // of both views together
  detail::Terms terms{};
  std::size_t n = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    const Index step_a = detail::step_of(a.strides[d], a.shape[d]);
    const Index step_b = detail::step_of(b.strides[d], b.shape[d]);
    const Index reach_a = step_a * (a.shape[d] - 1);
    const Index reach_b = step_b * (b.shape[d] - 1);
    reach = detail::saturated_sum(detail::saturated_sum(reach, reach_a), reach_b);
    if (reach == (std::numeric_limits<Index>::max)()) return true;
    offset += (a.strides[d] < 0 ? reach_a : 0) + (b.strides[d] > 0 ? reach_b : 0);
    detail::add_term(terms, n, step_a, a.shape[d]);
    detail::add_term(terms, n, step_b, b.shape[d]);
  }
  const Index size = a.element_size;
  if (bytes % size != 0) bytes -= bytes % size;  // A partial overlap counts as a whole one.
  int steps = 4096;
  const Index target = detail::saturated_sum(static_cast<Index>(bytes / size), offset);
  return target >= 0 && detail::reaches(terms, 0, n, target, steps);
}

/// Whether no two indices of a view refer to the same element, as an output requires. The criterion
/// is sufficient, not necessary: every stride must be larger than the memory extent of all smaller
/// ones.
FOVEA_COLD inline bool has_distinct_elements(const TensorLayout& x) {
  if (x.is_empty()) return true;
  for (std::size_t d = 0; d < 4; ++d) {
    const Index stride = detail::step_of(x.strides[d], x.shape[d]);
    Index reach = 0;  // of all dimensions inside d
    for (std::size_t e = 0; e < 4; ++e) {
      const Index inner = detail::step_of(x.strides[e], x.shape[e]);
      if (inner < stride || (inner == stride && e > d)) reach += inner * (x.shape[e] - 1);
    }
    if (x.shape[d] > 1 && stride <= reach) return false;
    if (x.shape[d] > 1 && stride == 0) return false;
  }
  return true;
}

FOVEA_NAMESPACE_END
