// SPDX-License-Identifier: MIT
/// \file
/// Compiler requirements, the library's version, and its inline namespace.
#pragma once

// These checks come before any standard header, which might itself fail to compile and hide the
// reason.
#if !defined(__GNUC__)
#error "fovea needs the vector extensions of GNU C++: build with GCC or Clang, not MSVC or clang-cl"
#endif
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#error "fovea needs GCC 12 or later: earlier ones have no __builtin_shufflevector"
#endif
#if defined(__SIZEOF_PTRDIFF_T__) && __SIZEOF_PTRDIFF_T__ < 8
#error "fovea needs a 64-bit target: it counts elements in std::ptrdiff_t, which must have 64 bits"
#endif
#if !defined(__cplusplus) || __cplusplus < 202002L
#error "fovea needs C++20 (-std=c++20)"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "fovea needs NaN and infinity: build without -ffast-math and -ffinite-math-only"
#endif
#if defined(__ASSOCIATIVE_MATH__)
#error "fovea rounds by adding and subtracting: build without -fassociative-math (-ffast-math)"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "fovea needs float arithmetic in float (FLT_EVAL_METHOD 0)"
#endif

#include <cstddef>

#define FOVEA_VERSION_MAJOR 0
#define FOVEA_VERSION_MINOR 1
#define FOVEA_VERSION_PATCH 0

// FOVEA_UNIT_LEVEL is the instruction-set level that the flags of this translation unit allow: 1 is
// the baseline, 3 is AVX2 with FMA, and 4 is AVX-512. It is fixed here, because regions compiled
// for another level change the macros it is derived from.
#if defined(__x86_64__) && defined(__AVX512F__) && defined(__AVX512BW__) && \
    defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512CD__)
#define FOVEA_UNIT_LEVEL 4
#define FOVEA_UNIT_LEVEL_NAME v4
#elif defined(__x86_64__) && defined(__AVX2__) && defined(__FMA__)
#define FOVEA_UNIT_LEVEL 3
#define FOVEA_UNIT_LEVEL_NAME v3
#else
#define FOVEA_UNIT_LEVEL 1
#define FOVEA_UNIT_LEVEL_NAME baseline
#endif

// Whether this translation unit also compiles the levels above its own.
#if defined(__x86_64__) && !defined(FOVEA_NATIVE_ONLY)
#define FOVEA_COMPILES_LEVELS 1
#else
#define FOVEA_COMPILES_LEVELS 0
#endif

// The name of the inline namespace encodes these flags and macros: code built with others gets
// other symbols, so the linker can never pick a function compiled for instructions that the machine
// lacks. Compilers print the name in every message, so it is short: each flag is one letter or
// nothing, and the usual flags of a level share one letter.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#if FOVEA_UNIT_LEVEL == 4  // FOVEA_TAG_AVX512 covers it
#define FOVEA_TAG_AVX
#else
#define FOVEA_TAG_AVX y
#endif
#else
#if defined(__AVX__)
#define FOVEA_TAG_AVX a
#elif defined(__SSE4_2__)
#define FOVEA_TAG_AVX s
#else
#define FOVEA_TAG_AVX
#endif
#if defined(__AVX2__)
#define FOVEA_TAG_AVX2 d
#endif
#if defined(__FMA__)
#define FOVEA_TAG_FMA f
#endif
#if defined(__F16C__)
#define FOVEA_TAG_F16C c
#endif
#endif
#ifndef FOVEA_TAG_AVX2
#define FOVEA_TAG_AVX2
#endif
#ifndef FOVEA_TAG_FMA
#define FOVEA_TAG_FMA
#endif
#ifndef FOVEA_TAG_F16C
#define FOVEA_TAG_F16C
#endif
#if FOVEA_UNIT_LEVEL == 4 && defined(__AVX512FP16__)
#define FOVEA_TAG_AVX512 h
#elif FOVEA_UNIT_LEVEL == 4 && defined(__AVX512VNNI__)
#define FOVEA_TAG_AVX512 n
#elif FOVEA_UNIT_LEVEL == 4
#define FOVEA_TAG_AVX512 w
#elif defined(__AVX512F__)
#define FOVEA_TAG_AVX512 x
#else
#define FOVEA_TAG_AVX512
#endif
#if defined(FOVEA_NATIVE_ONLY)
#define FOVEA_TAG_NATIVE o
#else
#define FOVEA_TAG_NATIVE
#endif
#if defined(FOVEA_COMPILED)
#define FOVEA_TAG_EXTERN e
#else
#define FOVEA_TAG_EXTERN
#endif
#define FOVEA_JOIN_(major, minor, a, b, c, d, e, f, g) v##major##_##minor##a##b##c##d##e##f##g
#define FOVEA_JOIN(major, minor, a, b, c, d, e, f, g) FOVEA_JOIN_(major, minor, a, b, c, d, e, f, g)
#define FOVEA_TAG                                                                     \
  FOVEA_JOIN(FOVEA_VERSION_MAJOR, FOVEA_VERSION_MINOR, FOVEA_TAG_AVX, FOVEA_TAG_AVX2, \
             FOVEA_TAG_FMA, FOVEA_TAG_F16C, FOVEA_TAG_AVX512, FOVEA_TAG_NATIVE, FOVEA_TAG_EXTERN)

#define FOVEA_NAMESPACE_BEGIN \
  namespace fovea {           \
  inline namespace FOVEA_TAG {
#define FOVEA_NAMESPACE_END \
  }                         \
  }

#define FOVEA_INLINE inline __attribute__((always_inline))
#define FOVEA_NOINLINE __attribute__((noinline))
/// Marks code that runs once per call, such as checks: compiled for size, which also compiles
/// faster.
#define FOVEA_COLD __attribute__((cold))

// Where exceptions are disabled, an error ends the process.
#if defined(__cpp_exceptions)
#define FOVEA_THROW(exception) throw exception
#else
#include <exception>
#define FOVEA_THROW(exception) (static_cast<void>(exception), std::terminate())
#endif

FOVEA_NAMESPACE_BEGIN

/// The type of sizes, strides and positions. They count elements, not bytes.
using Index = std::ptrdiff_t;

FOVEA_NAMESPACE_END
