// SPDX-License-Identifier: MIT
/// \file
/// Includes the instruction-set levels. The vector type itself is reached through
/// fovea/simd/foreach_level.hpp.
#pragma once

#include "fovea/simd/isa.hpp"
#include "fovea/simd/matrix.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/simd/region.hpp"
#include "fovea/simd/softmax_constants.hpp"
