// SPDX-License-Identifier: MIT
/// \file
/// The lock held in every FFTW call except executions.
///
/// FFTW is not thread-safe, except for executing plans. So the library holds `FftwLock`, one per
/// process, in all other FFTW calls. A program that calls FFTW itself must pass its lock to the
/// library by `set_fftw_lock`.
#pragma once

#include <mutex>

#include "fovea/core/config.hpp"

namespace fovea {

/// The lock of FFTW. It is plain data outside the tagged namespace, so that translation units of
/// all flags share one.
struct FftwLockState {
  std::mutex mutex;            ///< held while FFTW is called
  void (*lock)() = nullptr;    ///< called before FFTW is called, or null
  void (*unlock)() = nullptr;  ///< called after FFTW was called, or null
};
/// The one lock of the process.
inline constinit FftwLockState fftw_lock_state{};

}  // namespace fovea

FOVEA_NAMESPACE_BEGIN

/// Sets the lock of a program that calls FFTW itself. From now on the library calls `lock` before
/// every FFTW call except executions, and `unlock` after it; null disables. Call this while no
/// other thread uses the library. Neither function may throw or call the library.
inline void set_fftw_lock(void (*lock)(), void (*unlock)()) {
  const std::lock_guard guard(fftw_lock_state.mutex);
  fftw_lock_state.lock = lock;
  fftw_lock_state.unlock = unlock;
}

/// Holds the lock of FFTW during its lifetime.
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
