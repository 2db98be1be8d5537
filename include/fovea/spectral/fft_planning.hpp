// SPDX-License-Identifier: MIT
/// \file
/// How FFTW plans are chosen, an option of operators computed by FFTW.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// How FFTW chooses an algorithm. Measuring takes up to seconds per plan, and may choose
/// differently, with other bits, in every run. FFTW also uses measurements and imported wisdom for
/// later estimated plans, so a program that needs the same bits in every run must use neither.
enum class FftPlanning {
  estimate,  ///< by a heuristic, the same in every run
  measure    ///< by measuring, which may choose differently in every run
};

FOVEA_NAMESPACE_END
