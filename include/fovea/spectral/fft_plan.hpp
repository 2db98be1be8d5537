// SPDX-License-Identifier: MIT
/// \file
/// An FFTW plan: an out-of-place complex transform of one length.
#pragma once

#include <limits>
#include <stdexcept>
#include <string>

#include "fovea/core/error.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/spectral/fft_planning.hpp"
#include "fovea/spectral/fftw.hpp"
#include "fovea/spectral/fftw_lock.hpp"

FOVEA_NAMESPACE_BEGIN

/// The sign of the exponent of a transform.
enum class FftDirection {
  forward,  ///< e^{-2 pi i j k / n}
  inverse   ///< e^{+2 pi i j k / n}; the result is not divided by n
};

/// The parameters of a plan, besides its scalar type. Transforms are out of place, and arrays
/// aligned like a Workspace.
struct FftShape {
  Index size = 1;                                  ///< the number of complex elements
  FftDirection direction = FftDirection::forward;  ///< the direction of the transform
  FftPlanning planning = FftPlanning::estimate;    ///< how FFTW chooses the plan

  /// Whether both describe the same plan.
  bool operator==(const FftShape&) const = default;
};

/// Owns an FFTW plan for complex numbers of T (float or double).
///
/// FFTW aborts the process if allocation fails. To make this unlikely, sizes are checked first, and
/// as much memory as planning may need is allocated and freed before FFTW is called. Allocations by
/// other threads in between remain a risk.
template <class T>
class FftPlan {
 public:
  /// The largest size, because FFTW counts in int.
  static constexpr Index kMostElements = (std::numeric_limits<int>::max)();

  /// Creates the plan.
  /// \throws std::invalid_argument if size < 1 or beyond int
  /// \throws std::bad_alloc if allocation fails
  /// \throws std::runtime_error if FFTW has no plan
  explicit FftPlan(const FftShape& shape) : shape_(shape) {
    if (shape.size < 1 || shape.size > kMostElements) {
      refuse("FftPlan", "size", std::to_string(shape.size),
             "1 to " + std::to_string(kMostElements) + ", the sizes that FFTW supports");
    }
    constexpr Index element = 2 * Index{sizeof(T)};
    // Enough for two arrays, and FFTW's roots and buffers.
    { const Workspace asked(shape.size, 6 * element); }
    const Index padded = padded_size(shape.size, 8);
    Workspace in(padded, element);
    Workspace out(padded, element);
    const int sign = shape.direction == FftDirection::forward ? FFTW_FORWARD : FFTW_BACKWARD;
    const unsigned flags = shape.planning == FftPlanning::estimate ? FFTW_ESTIMATE : FFTW_MEASURE;
    const FftwLock lock;
    plan_ = Fftw<T>::plan(static_cast<int>(shape.size), in.data<T>(), out.data<T>(), sign, flags);
    if (plan_ == nullptr) {
      FOVEA_THROW(
          std::runtime_error("FftPlan: FFTW has no plan for size " + std::to_string(shape.size)));
    }
  }
  FftPlan(const FftPlan&) = delete;
  FftPlan& operator=(const FftPlan&) = delete;
  ~FftPlan() {
    const FftwLock lock;
    Fftw<T>::destroy(plan_);
  }

  /// The parameters of the plan.
  const FftShape& shape() const { return shape_; }

  /// out[k] = sum_j in[j] e^{-+ 2 pi i j k / size}, with the minus for a forward transform. The
  /// result is not divided by the size. Thread-safe.
  /// \param in, out complex [size]; two arrays that do not overlap, both aligned to 64 bytes. `in`
  /// is not changed.
  void execute(const T* in, T* out) const {
    // FFTW takes non-const `in`, because other kinds of plans overwrite it.
    Fftw<T>::execute(plan_, const_cast<T*>(in), out);
  }

 private:
  FftShape shape_;
  typename Fftw<T>::Plan plan_ = nullptr;
};

FOVEA_NAMESPACE_END
