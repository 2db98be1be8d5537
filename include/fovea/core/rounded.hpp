// SPDX-License-Identifier: MIT
/// \file
/// Products that compilers do not contract with the sums they are added to.
#pragma once

#include "fovea/core/config.hpp"

/// The inline-assembly constraint for a number or vector that the statement may change.
#if defined(__x86_64__)
#define FOVEA_CHANGES_NUMBER "+v"
#elif defined(__aarch64__)
#define FOVEA_CHANGES_NUMBER "+w"
#else
#define FOVEA_CHANGES_NUMBER "+m"
#endif

FOVEA_NAMESPACE_BEGIN

/// Returns x; a product passed through here is rounded before it is added to anything.
///
/// Where the machine has fused multiply-add, GCC contracts a product and a sum at -O2 but not at
/// -O1, and clang does if both are in one expression, so results would depend on the program's
/// flags. Sums of products are therefore either written as `fma` or rounded by this function; the
/// kernels' product of vectors does its own rounding.
/// \tparam T float or double
template <class T>
FOVEA_INLINE T rounded(T x) {
  asm("" : FOVEA_CHANGES_NUMBER(x));
  return x;
}

FOVEA_NAMESPACE_END
