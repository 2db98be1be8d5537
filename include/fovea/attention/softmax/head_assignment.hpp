// SPDX-License-Identifier: MIT
/// \file
/// Which heads see which of the two patterns A1 and A2 of a factorised attention (Child et al.
/// 2019, section 4.3; MATHS.md, section 3).
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Which heads see A1, and which A2.
enum class HeadAssignment {
  separate,     ///< head h sees A1 if h is even, and A2 if it is odd
  merged,       ///< every head sees both, in one softmax; a key in both counts once
  only_first,   ///< every head sees A1, for alternating layers
  only_second,  ///< every head sees A2, for alternating layers
};

namespace detail {

/// Head h's pattern: the result of one of the three functions.
template <class First, class Second, class Both>
auto assigned(HeadAssignment assignment, Index head, const First& first, const Second& second,
              const Both& both) {
  switch (assignment) {
    case HeadAssignment::merged:
      return both();
    case HeadAssignment::only_first:
      return first();
    case HeadAssignment::only_second:
      return second();
    case HeadAssignment::separate:
      break;
  }
  return head % 2 == 0 ? first() : second();
}

/// The patterns repeat after this many heads.
inline Index assignment_period(HeadAssignment assignment) {
  return assignment == HeadAssignment::separate ? 2 : 1;
}

}  // namespace detail

FOVEA_NAMESPACE_END
