// SPDX-License-Identifier: MIT
/// \file
/// Compiles the file named by the macro FOVEA_LEVEL_BODY once per instruction-set level, into the
/// namespaces fovea::baseline, fovea::v3 and fovea::v4, each with its own `Vec` and math.
///
/// No include guard: every use names another body and ends with that macro undefined. The body
/// includes nothing; what it needs stands before the use, outside the regions.

#include "fovea/core/config.hpp"
#include "fovea/core/key_run.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/matrix.hpp"
#include "fovea/simd/region.hpp"
#include "fovea/simd/softmax_constants.hpp"

#if !defined(FOVEA_LEVEL_BODY)
#error "define FOVEA_LEVEL_BODY before including fovea/simd/foreach_level.hpp"
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

// GCC sees a change of sign in every array bound that depends on a template's int. Clang does not,
// and checks these files with the same warning.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

// The unit's own level, by its own flags.
#define FOVEA_LEVEL FOVEA_UNIT_LEVEL
FOVEA_REGION_BEGIN_BASELINE
FOVEA_NAMESPACE_BEGIN
#if FOVEA_UNIT_LEVEL == 4
namespace v4 {
#elif FOVEA_UNIT_LEVEL == 3
namespace v3 {
#else
namespace baseline {
#endif
#if !defined(FOVEA_SIMD_UNIT_DONE)
#define FOVEA_SIMD_UNIT_DONE
#include "fovea/simd/bodies.inl.hpp"
#endif
#include FOVEA_LEVEL_BODY
}  // namespace of the level
FOVEA_NAMESPACE_END
FOVEA_REGION_END_BASELINE
#undef FOVEA_LEVEL

#if FOVEA_COMPILE_V3
#define FOVEA_LEVEL 3
FOVEA_REGION_BEGIN_V3
FOVEA_NAMESPACE_BEGIN
namespace v3 {
#if !defined(FOVEA_SIMD_V3_DONE)
#define FOVEA_SIMD_V3_DONE
#include "fovea/simd/bodies.inl.hpp"
#endif
#include FOVEA_LEVEL_BODY
}  // namespace v3
FOVEA_NAMESPACE_END
FOVEA_REGION_END
#undef FOVEA_LEVEL
#endif

#if FOVEA_COMPILE_V4
#define FOVEA_LEVEL 4
FOVEA_REGION_BEGIN_V4
FOVEA_NAMESPACE_BEGIN
namespace v4 {
#if !defined(FOVEA_SIMD_V4_DONE)
#define FOVEA_SIMD_V4_DONE
#include "fovea/simd/bodies.inl.hpp"
#endif
#include FOVEA_LEVEL_BODY
}  // namespace v4
FOVEA_NAMESPACE_END
FOVEA_REGION_END
#undef FOVEA_LEVEL
#endif

#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#undef FOVEA_LEVEL_BODY
