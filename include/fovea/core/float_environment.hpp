// SPDX-License-Identifier: MIT
/// \file
/// The floating-point environment of a thread: rounding mode, flush-to-zero bits, trap masks.
#pragma once

#include "fovea/core/config.hpp"

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The control bits of a thread's floating-point arithmetic, without status flags.
class FloatEnvironment {
 public:
  /// Reads the calling thread's environment. Cost: about 20 ns.
  FloatEnvironment() noexcept { read(); }

  /// Makes the calling thread compute as the thread that created this object did.
  /// \param current the calling thread's environment; bits that are equal are not written
  void replace(const FloatEnvironment& current) const noexcept {
#if defined(__x86_64__)
    if (sse_ != current.sse_) {
      const unsigned flags = __builtin_ia32_stmxcsr() & kStatusFlags;
      __builtin_ia32_ldmxcsr(sse_ | flags);
    }
    if (x87_ != current.x87_) asm volatile("fldcw %0" : : "m"(x87_));
#elif defined(__aarch64__)
    if (control_ != current.control_) asm volatile("msr fpcr, %0" : : "r"(control_) : "memory");
#else
    static_cast<void>(current);
    std::fesetenv(&all_);
#endif
  }

 private:
#if defined(__x86_64__)
  static constexpr unsigned kStatusFlags = 0x3f;

  void read() noexcept {
    sse_ = __builtin_ia32_stmxcsr() & ~kStatusFlags;
    asm volatile("fnstcw %0" : "=m"(x87_));
  }

  unsigned sse_ = 0;
  unsigned short x87_ = 0;  // of long double
#elif defined(__aarch64__)
  void read() noexcept { asm volatile("mrs %0, fpcr" : "=r"(control_)); }

  unsigned long long control_ = 0;
#else
  void read() noexcept { std::fegetenv(&all_); }

  std::fenv_t all_ = {};  // status flags, too
#endif
};

/// While this object lives, the calling thread computes in another thread's environment; its own is
/// restored afterwards.
class FloatEnvironmentScope {
 public:
  /// \param other must outlive this object
  explicit FloatEnvironmentScope(const FloatEnvironment& other) noexcept : other_(other) {
    other_.replace(own_);
  }
  FloatEnvironmentScope(const FloatEnvironmentScope&) = delete;
  FloatEnvironmentScope& operator=(const FloatEnvironmentScope&) = delete;
  ~FloatEnvironmentScope() { own_.replace(other_); }

 private:
  const FloatEnvironment own_;
  const FloatEnvironment& other_;
};

}  // namespace detail

FOVEA_NAMESPACE_END
