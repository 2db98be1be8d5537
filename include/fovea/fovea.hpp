// SPDX-License-Identifier: MIT
/// \file
/// Includes the whole library, with Eigen's tensors as arguments and results, except what needs
/// FFTW, OpenMP or oneTBB.
#pragma once

#include "fovea/attention.hpp"
#include "fovea/core.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/kernels.hpp"
#include "fovea/layers.hpp"
#include "fovea/patterns.hpp"
#include "fovea/simd.hpp"
