// SPDX-License-Identifier: MIT
/// \file
/// Constants shared by softmax kernels and their callers.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The reduction block: keys per chain of additions, and columns per chain of a logit, at absolute
/// multiples. It keeps the rounding of a constant row within the contract for any width.
inline constexpr Index kReductionBlock = 64;

/// If |lse| is larger, its rounding would matter in the weights that a backward pass recomputes
/// from it: their relative error is the absolute error of lse. So for such rows the low part of
/// lse, its rounding error, is recomputed first. Below, it is at most 2^-18 (float) or 2^-47
/// (double).
inline constexpr int kLargeLse = 32;

FOVEA_NAMESPACE_END
