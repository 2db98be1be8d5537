// SPDX-License-Identifier: MIT
/// \file
/// The control and status register of SSE and AVX: rounding mode, flush-to-zero bits, flags.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

namespace fovea_test {

inline constexpr unsigned kStickyFlags = 0x3f;
inline constexpr unsigned kFlushToZero = 0x8000;
inline constexpr unsigned kDenormalsAreZero = 0x0040;
inline constexpr unsigned kTowardsZero = 0x6000;

/// Settings that programs use: flushed subnormals, and each rounding mode but the default one.
inline constexpr unsigned kMxcsrModes[] = {kFlushToZero | kDenormalsAreZero, 0x2000, 0x4000,
                                           kTowardsZero};

/// Sets bits of MXCSR until it is destroyed.
class WithMxcsr {
 public:
  explicit WithMxcsr(unsigned bits) : before_(_mm_getcsr()) { _mm_setcsr(before_ | bits); }
  WithMxcsr(const WithMxcsr&) = delete;
  WithMxcsr& operator=(const WithMxcsr&) = delete;
  ~WithMxcsr() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};

}  // namespace fovea_test

#endif
