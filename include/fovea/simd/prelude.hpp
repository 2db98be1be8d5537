// SPDX-License-Identifier: MIT
/// \file
/// The dependencies of kernel bodies outside the regions: integers, arguments, intrinsics.
#pragma once

#include "fovea/core/config.hpp"
#include "fovea/core/key_run.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/matrix.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/simd/region.hpp"
#include "fovea/simd/softmax_constants.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
