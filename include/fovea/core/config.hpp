// SPDX-License-Identifier: MIT
/// \file
/// What the compiler must promise, the version, and the tag of the inline namespace.
#pragma once

#include <cstddef>

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "fovea needs C++20 (-std=c++20)"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "fovea needs NaN and infinity: build without -ffast-math and -ffinite-math-only"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "fovea needs float arithmetic in float (FLT_EVAL_METHOD 0)"
#endif

#define FOVEA_VERSION_MAJOR 0
#define FOVEA_VERSION_MINOR 1
#define FOVEA_VERSION_PATCH 0

// The instruction-set level of this translation unit's own flags: 1 baseline, 3 AVX2 + FMA,
// 4 AVX-512. Fixed here, before any region changes the macros it is made of.
#if defined(__x86_64__) && defined(__AVX512F__) && defined(__AVX512BW__) && \
    defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512CD__)
#define FOVEA_UNIT_LEVEL 4
#elif defined(__x86_64__) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define FOVEA_UNIT_LEVEL 3
#else
#define FOVEA_UNIT_LEVEL 1
#endif

// Code built with other flags or macros gets other symbols, so that the linker can never hand a
// baseline caller a function that was compiled for AVX-512.
#define FOVEA_JOIN_(a, b) a##b
#define FOVEA_JOIN(a, b) FOVEA_JOIN_(a, b)
#if FOVEA_UNIT_LEVEL == 4
#define FOVEA_TAG_LEVEL v0_1_avx512
#elif FOVEA_UNIT_LEVEL == 3
#define FOVEA_TAG_LEVEL v0_1_avx2
#elif defined(__AVX__)
#define FOVEA_TAG_LEVEL v0_1_avx
#else
#define FOVEA_TAG_LEVEL v0_1_base
#endif
#if defined(FOVEA_NATIVE_ONLY)
#define FOVEA_TAG FOVEA_JOIN(FOVEA_TAG_LEVEL, _native)
#else
#define FOVEA_TAG FOVEA_TAG_LEVEL
#endif

#define FOVEA_NAMESPACE_BEGIN \
  namespace fovea {           \
  inline namespace FOVEA_TAG {
#define FOVEA_NAMESPACE_END \
  }                         \
  }

#if defined(__GNUC__)
#define FOVEA_INLINE inline __attribute__((always_inline))
#define FOVEA_NOINLINE __attribute__((noinline))
#else
#define FOVEA_INLINE inline
#define FOVEA_NOINLINE
#endif

#if defined(__cpp_exceptions)
#define FOVEA_THROW(exception) throw exception
#else
#include <exception>
#define FOVEA_THROW(exception) (static_cast<void>(exception), std::terminate())
#endif

FOVEA_NAMESPACE_BEGIN

/// Sizes, strides and positions count elements.
using Index = std::ptrdiff_t;

FOVEA_NAMESPACE_END
