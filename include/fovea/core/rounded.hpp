// SPDX-License-Identifier: MIT
/// \file
/// Products that no compiler fuses with the sums that they go into.
#pragma once

#include "fovea/core/config.hpp"

/// The constraint of an assembler statement for a number, or a vector of them, that it may change.
#if defined(__x86_64__)
#define FOVEA_CHANGES_NUMBER "+v"
#elif defined(__aarch64__)
#define FOVEA_CHANGES_NUMBER "+w"
#else
#define FOVEA_CHANGES_NUMBER "+m"
#endif

FOVEA_NAMESPACE_BEGIN

/// x itself: a product that passes through here is rounded before it is added to anything.
///
/// Where the machine has a fused multiply-add, GCC makes one of a product and a sum at -O2 and not
/// at -O1, clang does where both stand in one expression: the bits of a result would depend on the
/// flags of the program. So sums of products are either written as `fma` or rounded by this; the
/// product of vectors in kernels is rounded by itself.
/// \tparam T float or double
template <class T>
FOVEA_INLINE T rounded(T x) {
  asm("" : FOVEA_CHANGES_NUMBER(x));
  return x;
}

FOVEA_NAMESPACE_END
