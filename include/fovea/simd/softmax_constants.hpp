// SPDX-License-Identifier: MIT
/// \file
/// The numbers that every kernel with a softmax shares, and that its callers know.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Keys of one chain of additions, and columns of one chain of a logit, at absolute multiples: sums
/// of chains keep the rounding of a constant row within the contract, whatever the width.
inline constexpr Index kChain = 64;

/// Beyond it, of either sign, the rounding of lse would weigh in the weights that a backward pass
/// recomputes from it: their relative error is that of lse in absolute terms. So of such rows the
/// low part of lse, what its rounding took, is recomputed first. Below, it is at most 2^-18 (float)
/// or 2^-47 (double).
inline constexpr int kLargeLse = 32;

FOVEA_NAMESPACE_END
