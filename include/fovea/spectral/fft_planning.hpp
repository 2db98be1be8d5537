// SPDX-License-Identifier: MIT
/// \file
/// How the plans of FFTW are chosen, an option of the operators that it computes.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// How FFTW chooses among its ways to compute a transform. Measuring takes up to seconds, once for
/// each plan, and another run may choose otherwise and so give other bits. What a process has
/// measured, or has read as wisdom, FFTW also uses for the plans that it makes by rule afterwards.
/// So a program that wants the same bits in every run must do neither.
enum class FftPlanning {
  estimate,  ///< by a rule, the same in every run
  measure    ///< by measuring, which may choose differently in every run
};

FOVEA_NAMESPACE_END
