// SPDX-License-Identifier: MIT
/// \file
/// A plan of FFTW: a complex transform of one length, from one array to another.
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

/// What a plan depends on, beside the type of its numbers. There are always two arrays, which are
/// aligned as a Workspace is.
struct FftShape {
  Index size = 1;                                  ///< the number of complex elements
  FftDirection direction = FftDirection::forward;  ///< the direction of the transform
  FftPlanning planning = FftPlanning::estimate;    ///< how FFTW chooses the plan

  /// Whether both ask for the same plan.
  bool operator==(const FftShape&) const = default;
};

/// Owns a plan of FFTW for complex numbers of T (float or double).
///
/// FFTW aborts the process if it gets no memory, and nothing can prevent that from outside. So as
/// little as possible is left to it: sizes are checked first, and as much memory as planning may
/// take is asked for, and given back, before FFTW is called. What another thread takes in between
/// remains a risk.
template <class T>
class FftPlan {
 public:
  /// The largest size, because FFTW counts in int.
  static constexpr Index kMostElements = (std::numeric_limits<int>::max)();

  /// Makes the plan.
  /// \throws std::invalid_argument if size < 1 or beyond int
  /// \throws std::bad_alloc if there is no memory for planning
  /// \throws std::runtime_error if FFTW has no plan
  explicit FftPlan(const FftShape& shape) : shape_(shape) {
    if (shape.size < 1 || shape.size > kMostElements) {
      refuse("FftPlan", "size", std::to_string(shape.size),
             "1 to " + std::to_string(kMostElements) + ", the sizes that FFTW takes");
    }
    constexpr Index element = 2 * Index{sizeof(T)};
    // This is enough for two arrays, and for the roots and buffers of FFTW itself.
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
          std::runtime_error("FftPlan: FFTW has no plan of size " + std::to_string(shape.size)));
    }
  }
  FftPlan(const FftPlan&) = delete;
  FftPlan& operator=(const FftPlan&) = delete;
  ~FftPlan() {
    const FftwLock lock;
    Fftw<T>::destroy(plan_);
  }

  /// What the plan was made for.
  const FftShape& shape() const { return shape_; }

  /// out[k] = sum_j in[j] e^{-+ 2 pi i j k / size}, with the minus for a forward transform. The
  /// result is not divided by the size. Several threads may call this at once.
  /// \param in, out complex [size]; two arrays that do not overlap, both aligned to 64 bytes. `in`
  /// is not changed.
  void execute(const T* in, T* out) const {
    // FFTW takes `in` without const, because plans of other kinds overwrite it.
    Fftw<T>::execute(plan_, const_cast<T*>(in), out);
  }

 private:
  FftShape shape_;
  typename Fftw<T>::Plan plan_ = nullptr;
};

FOVEA_NAMESPACE_END
