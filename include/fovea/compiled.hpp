// SPDX-License-Identifier: MIT
/// \file
/// The compiled form in one source: all kernels and passes of attention, for float, double and
/// numbers of 16 bits. A program of many sources defines FOVEA_COMPILED for all of them and adds
/// one that includes this header. Or two that share the work, where FOVEA_COMPILED_BITS is 32
/// (float and 16 bits) and 64 (double). CMake's target fovea::compiled does the same in more
/// sources.
#pragma once

#if !defined(FOVEA_COMPILED)
#error "fovea: define FOVEA_COMPILED for this source, and for all sources that use fovea"
#endif
#if defined(FOVEA_HAS_PASS_BODIES)
#error "fovea: include fovea/compiled.hpp before the other headers of fovea"
#endif
#define FOVEA_KERNELS_UNIT FOVEA_COMPILED_BITS
#define FOVEA_PASSES_UNIT FOVEA_COMPILED_BITS
#define FOVEA_COMPILES_ALL

#include <Eigen/Core>

#include "fovea/attention.hpp"
#include "fovea/kernels/table.hpp"
