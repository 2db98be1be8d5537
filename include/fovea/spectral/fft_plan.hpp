// SPDX-License-Identifier: MIT
/// \file
/// A plan of FFTW: a complex transform of one length, from one array to another.
#pragma once

#include <limits>
#include <stdexcept>
#include <string>

#include "fovea/core/error.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/spectral/fftw.hpp"

FOVEA_NAMESPACE_BEGIN

/// How FFTW chooses among its ways to compute a transform: by a rule, the same in every run, or by
/// measuring, which takes up to seconds once and may choose otherwise, and so give other bits, in
/// another run. What a process has measured, or read as wisdom, FFTW also takes for the plans that
/// it makes by rule afterwards: a program that wants the same bits in every run does neither.
enum class FftPlanning { estimate, measure };

enum class FftDirection { forward, inverse };

/// What a plan depends on, beside the type. Arrays are always two, aligned as a Workspace is.
struct FftShape {
  Index size = 1;  ///< complex elements
  FftDirection direction = FftDirection::forward;
  FftPlanning planning = FftPlanning::estimate;

  bool operator==(const FftShape&) const = default;
};

/// Owns a plan of FFTW for complex numbers of T (float or double).
/// FFTW aborts the process if it gets no memory, and nothing can be done about it from outside. As
/// little as possible is left to it: sizes are checked first, and as much memory as planning may
/// take is asked for, and given back, before it is called; what another thread takes in between
/// stays a risk.
template <class T>
class FftPlan {
 public:
  /// The largest size: FFTW counts in int.
  static constexpr Index kMostElements = (std::numeric_limits<int>::max)();

  /// \throws std::invalid_argument size < 1 or beyond int; std::bad_alloc no memory for planning;
  ///         std::runtime_error FFTW has no plan
  explicit FftPlan(const FftShape& shape) : shape_(shape) {
    if (shape.size < 1 || shape.size > kMostElements) {
      refuse("FftPlan", "size", std::to_string(shape.size),
             "1 to " + std::to_string(kMostElements) + ", the sizes of FFTW");
    }
    constexpr Index element = 2 * Index{sizeof(T)};
    // Two arrays, and roots and buffers of FFTW's own.
    { const Workspace asked(shape.size, 6 * element); }
    const Index padded = (shape.size + 7) / 8 * 8;
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

  const FftShape& shape() const { return shape_; }

  /// out[k] = sum_j in[j] e^{-+ 2 pi i j k / size}, not divided by the size. Any threads may do so
  /// at once.
  /// \param in, out complex [size], apart, both aligned to 64 bytes; in stays as it is
  void execute(const T* in, T* out) const {
    // FFTW's argument is not const for the sake of other plans.
    Fftw<T>::execute(plan_, const_cast<T*>(in), out);
  }

 private:
  FftShape shape_;
  typename Fftw<T>::Plan plan_ = nullptr;
};

FOVEA_NAMESPACE_END
