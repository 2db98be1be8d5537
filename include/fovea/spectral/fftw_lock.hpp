// SPDX-License-Identifier: MIT
/// \file
/// The lock that is held in every call of FFTW except executions.
///
/// FFTW is not safe in threads, except for the execution of plans. So this library holds `FftwLock`
/// in each of its other calls of FFTW, in the whole process. A program that calls FFTW itself must
/// give the library its own lock by `set_fftw_lock`; a lock of its own alone cannot protect it from
/// the calls of the library.
#pragma once

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

FOVEA_NAMESPACE_END
