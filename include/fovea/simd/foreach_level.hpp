// SPDX-License-Identifier: MIT
/// \file
/// Compiles the file named by the macro FOVEA_LEVEL_BODY once per instruction-set level, into the
/// namespaces fovea::baseline, fovea::v3 and fovea::v4, each with its own `Vec` and math. A level
/// that this unit does not compile is an alias of the unit's own. If FOVEA_LEVEL_BODY_HAS_BF16 is
/// defined, too, the file is also compiled into fovea::v4_bf16.
///
/// No include guard: every use names another body and ends with that macro undefined. A body
/// includes nothing outside the regions; its dependencies are included before the use.

#if !defined(FOVEA_LEVEL_BODY)
#error "define FOVEA_LEVEL_BODY before including fovea/simd/foreach_level.hpp"
#endif

#pragma push_macro("FOVEA_LEVEL_BODY")
#pragma push_macro("FOVEA_LEVEL_BODY_HAS_BF16")
#undef FOVEA_LEVEL_BODY
#undef FOVEA_LEVEL_BODY_HAS_BF16
#include "fovea/simd/vec.hpp"
#pragma pop_macro("FOVEA_LEVEL_BODY")
#pragma pop_macro("FOVEA_LEVEL_BODY_HAS_BF16")

#include "fovea/simd/levels/regions.inl.hpp"
