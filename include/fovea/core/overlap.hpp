// SPDX-License-Identifier: MIT
/// \file
/// Whether two views share an element, and whether a view's elements are distinct: in O(1), from
/// the strides.
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

namespace detail {

/// One term of a sum of offsets: a stride > 0, taken 0 ... count - 1 times.
struct Term {
  Index stride;
  Index count;
};

using Terms = std::array<Term, 8>;

/// |stride| of a dimension: 0 if it has one index, which takes no step whatever its stride says.
inline Index step_of(Index stride, Index extent) { return extent == 1 ? 0 : std::abs(stride); }

/// a + b, or the largest Index if that does not fit; b >= 0.
inline Index saturated_sum(Index a, Index b) {
  constexpr Index most = (std::numeric_limits<Index>::max)();
  return a > most - b ? most : a + b;
}

/// Whether some sum of terms [t, n) is `target`: the terms by descending stride, and for each only
/// the counts that leave a rest within reach of the later ones, which for nested layouts is one or
/// two. `steps` bounds the work; when it runs out the answer is yes, to be on the safe side.
inline bool reaches(const Terms& terms, std::size_t t, std::size_t n, Index target, int& steps) {
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

/// Adds a term to the first n, by descending stride; terms of one stride become one.
inline void add_term(Terms& terms, std::size_t& n, Index stride, Index count) {
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

}  // namespace detail

namespace detail {

/// The bytes from a view's lowest element to its highest, as far as addresses go.
template <class T>
std::pair<std::intptr_t, std::intptr_t> byte_range(const View<T>& x) {
  const auto first = reinterpret_cast<std::intptr_t>(x.data());
  Index low = 0;  // elements before the first one
  Index high = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    const Index reach = step_of(x.strides()[d], x.shape()[d]) * (x.shape()[d] - 1);
    (x.strides()[d] < 0 ? low : high) += reach;
  }
  constexpr auto size = static_cast<std::intptr_t>(sizeof(T));
  constexpr auto least = (std::numeric_limits<std::intptr_t>::min)();
  const bool begins_before = first < least + low * size;
  return {begins_before ? least : first - low * size,
          saturated_sum(saturated_sum(first, high * size), size)};
}

}  // namespace detail

/// Whether an element of \p a is an element of \p b. Exact for layouts whose strides nest; views
/// whose interleaving takes more than a few thousand steps to decide count as overlapping, and so
/// do views whose reaches add up to more than Index holds, and views of elements of different sizes
/// one of which begins before the other ends.
template <class A, class B>
bool shares_elements(const View<A>& a, const View<B>& b) {
  if (a.size() == 0 || b.size() == 0) return false;
  if constexpr (sizeof(A) != sizeof(B)) {
    const auto [a_begin, a_end] = detail::byte_range(a);
    const auto [b_begin, b_end] = detail::byte_range(b);
    return a_begin < b_end && b_begin < a_end;
  }
  const auto address_a = reinterpret_cast<std::uintptr_t>(a.data());
  const auto address_b = reinterpret_cast<std::uintptr_t>(b.data());
  // a0 + sum a = b0 + sum b, with every index of b, and of a negative stride, counted from its end.
  auto bytes = static_cast<std::intptr_t>(address_b - address_a);
  Index offset = 0;
  Index reach = 0;  // of both views
  detail::Terms terms{};
  std::size_t n = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    const Index step_a = detail::step_of(a.strides()[d], a.shape()[d]);
    const Index step_b = detail::step_of(b.strides()[d], b.shape()[d]);
    const Index reach_a = step_a * (a.shape()[d] - 1);
    const Index reach_b = step_b * (b.shape()[d] - 1);
    reach = detail::saturated_sum(detail::saturated_sum(reach, reach_a), reach_b);
    if (reach == (std::numeric_limits<Index>::max)()) return true;
    offset += (a.strides()[d] < 0 ? reach_a : 0) + (b.strides()[d] > 0 ? reach_b : 0);
    detail::add_term(terms, n, step_a, a.shape()[d]);
    detail::add_term(terms, n, step_b, b.shape()[d]);
  }
  constexpr auto size = static_cast<std::intptr_t>(sizeof(A));
  if (bytes % size != 0) bytes -= bytes % size;  // elements that overlap by bytes: near enough
  int steps = 4096;
  const Index target = detail::saturated_sum(static_cast<Index>(bytes / size), offset);
  return target >= 0 && detail::reaches(terms, 0, n, target, steps);
}

/// Whether no two indices of a view name the same element, as what is written needs; sufficient,
/// by nesting: each stride must pass the reach of the smaller ones.
template <class T>
bool has_distinct_elements(const View<T>& x) {
  if (x.size() == 0) return true;
  for (std::size_t d = 0; d < 4; ++d) {
    const Index stride = detail::step_of(x.strides()[d], x.shape()[d]);
    Index reach = 0;  // of the dimensions inside d
    for (std::size_t e = 0; e < 4; ++e) {
      const Index inner = detail::step_of(x.strides()[e], x.shape()[e]);
      if (inner < stride || (inner == stride && e > d)) reach += inner * (x.shape()[e] - 1);
    }
    if (x.shape()[d] > 1 && stride <= reach) return false;
    if (x.shape()[d] > 1 && stride == 0) return false;
  }
  return true;
}

FOVEA_NAMESPACE_END
