// SPDX-License-Identifier: MIT
/// \file
/// FFTW's float and double functions as a template.
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

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// FFTW's names for T. Complex numbers are pairs of T.
template <class T>
struct Fftw;

/// FFTW's names for float.
template <>
struct Fftw<float> {
  using Plan = fftwf_plan;  ///< An FFTW plan.
  /// Plans a transform of n complex elements; null on failure. Needs FftwLock.
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

/// FFTW's names for double.
template <>
struct Fftw<double> {
  using Plan = fftw_plan;  ///< An FFTW plan.
  /// Plans a transform of n complex elements; null on failure. Needs FftwLock.
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
