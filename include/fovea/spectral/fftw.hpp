// SPDX-License-Identifier: MIT
/// \file
/// FFTW for float and double under one name each, and the lock that is held in every call of it
/// except executions.
///
/// FFTW is not safe in threads, except for the execution of plans. So this library holds `FftwLock`
/// in each of its other calls of FFTW, in the whole process. A program that calls FFTW itself must
/// give the library its own lock by `set_fftw_lock`; a lock of its own alone cannot protect it from
/// the calls of the library.
///
/// FFTW is under the GPL, and a program that includes this header links it. No other part of fovea
/// needs it.
#pragma once

#if defined(__has_include)
#if !__has_include(<fftw3.h>)
#error "fovea/spectral needs FFTW 3: install libfftw3-dev and link the CMake target fovea::fftw"
#endif
#endif
#include <fftw3.h>

#include <mutex>

#include "fovea/core/config.hpp"

namespace fovea {

/// The lock of FFTW. It stands outside of the tagged namespace and is nothing but data, so that
/// units of all flags share one.
struct FftwLockState {
  std::mutex mutex;            ///< held while FFTW is called
  void (*lock)() = nullptr;    ///< called before FFTW is called, or null
  void (*unlock)() = nullptr;  ///< called after FFTW was called, or null
};
/// The one lock of the process.
inline constinit FftwLockState fftw_lock_state{};

}  // namespace fovea

FOVEA_NAMESPACE_BEGIN

/// Gives the library the lock of a program that calls FFTW itself. From now on `lock` is called
/// before every call of FFTW except executions, and `unlock` after it; null calls nothing. Call
/// this while no other thread uses the library. Neither function may throw or call the library.
inline void set_fftw_lock(void (*lock)(), void (*unlock)()) {
  const std::lock_guard guard(fftw_lock_state.mutex);
  fftw_lock_state.lock = lock;
  fftw_lock_state.unlock = unlock;
}

/// Holds the lock of FFTW from its construction until it is destroyed.
class FftwLock {
 public:
  FftwLock() : guard_(fftw_lock_state.mutex), unlock_(fftw_lock_state.unlock) {
    if (fftw_lock_state.lock != nullptr) fftw_lock_state.lock();
  }
  FftwLock(const FftwLock&) = delete;
  FftwLock& operator=(const FftwLock&) = delete;
  ~FftwLock() {
    if (unlock_ != nullptr) unlock_();
  }

 private:
  std::lock_guard<std::mutex> guard_;
  void (*unlock_)();
};

/// The names that FFTW has for T. Complex numbers are pairs of T.
template <class T>
struct Fftw;

/// The names that FFTW has for float.
template <>
struct Fftw<float> {
  using Plan = fftwf_plan;  ///< A plan of FFTW.
  /// Makes a plan of a transform of n complex elements; null if there is none. Needs FftwLock.
  static Plan plan(int n, float* in, float* out, int sign, unsigned flags) {
    return fftwf_plan_dft_1d(n, reinterpret_cast<fftwf_complex*>(in),
                             reinterpret_cast<fftwf_complex*>(out), sign, flags);
  }
  /// Destroys a plan. Needs FftwLock.
  static void destroy(Plan plan) { fftwf_destroy_plan(plan); }
  /// Executes a plan on other arrays of the same alignment.
  static void execute(Plan plan, float* in, float* out) {
    fftwf_execute_dft(plan, reinterpret_cast<fftwf_complex*>(in),
                      reinterpret_cast<fftwf_complex*>(out));
  }
};

/// The names that FFTW has for double.
template <>
struct Fftw<double> {
  using Plan = fftw_plan;  ///< A plan of FFTW.
  /// Makes a plan of a transform of n complex elements; null if there is none. Needs FftwLock.
  static Plan plan(int n, double* in, double* out, int sign, unsigned flags) {
    return fftw_plan_dft_1d(n, reinterpret_cast<fftw_complex*>(in),
                            reinterpret_cast<fftw_complex*>(out), sign, flags);
  }
  /// Destroys a plan. Needs FftwLock.
  static void destroy(Plan plan) { fftw_destroy_plan(plan); }
  /// Executes a plan on other arrays of the same alignment.
  static void execute(Plan plan, double* in, double* out) {
    fftw_execute_dft(plan, reinterpret_cast<fftw_complex*>(in),
                     reinterpret_cast<fftw_complex*>(out));
  }
};

FOVEA_NAMESPACE_END
