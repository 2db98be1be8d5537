// SPDX-License-Identifier: MIT
/// \file
/// Everything, with Eigen's tensors as arguments and results.
#pragma once

#include "fovea/attention.hpp"
#include "fovea/core.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/kernels.hpp"
#include "fovea/layers.hpp"
#include "fovea/patterns.hpp"
#include "fovea/simd.hpp"
