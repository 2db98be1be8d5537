// SPDX-License-Identifier: MIT
/// \file
/// FFTW for float and double by one name each, and the lock that every call but an execution holds.
///
/// FFTW's planner, and all else but execution, is not safe in threads. `FftwLock` is held in every
/// such call of this library, in the whole process. A program that calls FFTW itself gives the
/// library its own lock by `set_fftw_lock`; a private one cannot protect it from us.
///
/// FFTW is under the GPL: who includes this header links it. No other part of fovea needs it.
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

/// Outside of the tagged namespace, and data alone: one for units of all flags.
struct FftwLockState {
  std::mutex mutex;
  void (*lock)() = nullptr;
  void (*unlock)() = nullptr;
};
inline constinit FftwLockState fftw_lock_state{};

}  // namespace fovea

FOVEA_NAMESPACE_BEGIN

/// Gives the library the lock of a program that calls FFTW itself: from now on `lock` is called
/// before every call of FFTW but executions, and `unlock` after it. Null: none. To be called while
/// no other thread uses the library; neither may throw, nor call it.
inline void set_fftw_lock(void (*lock)(), void (*unlock)()) {
  const std::lock_guard guard(fftw_lock_state.mutex);
  fftw_lock_state.lock = lock;
  fftw_lock_state.unlock = unlock;
}

/// Holds the lock of FFTW until it is destroyed.
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

/// What FFTW calls things for T. Complex numbers are pairs of T.
template <class T>
struct Fftw;

template <>
struct Fftw<float> {
  using Plan = fftwf_plan;
  static Plan plan(int n, float* in, float* out, int sign, unsigned flags) {
    return fftwf_plan_dft_1d(n, reinterpret_cast<fftwf_complex*>(in),
                             reinterpret_cast<fftwf_complex*>(out), sign, flags);
  }
  static void destroy(Plan plan) { fftwf_destroy_plan(plan); }
  static void execute(Plan plan, float* in, float* out) {
    fftwf_execute_dft(plan, reinterpret_cast<fftwf_complex*>(in),
                      reinterpret_cast<fftwf_complex*>(out));
  }
};

template <>
struct Fftw<double> {
  using Plan = fftw_plan;
  static Plan plan(int n, double* in, double* out, int sign, unsigned flags) {
    return fftw_plan_dft_1d(n, reinterpret_cast<fftw_complex*>(in),
                            reinterpret_cast<fftw_complex*>(out), sign, flags);
  }
  static void destroy(Plan plan) { fftw_destroy_plan(plan); }
  static void execute(Plan plan, double* in, double* out) {
    fftw_execute_dft(plan, reinterpret_cast<fftw_complex*>(in),
                     reinterpret_cast<fftw_complex*>(out));
  }
};

FOVEA_NAMESPACE_END
