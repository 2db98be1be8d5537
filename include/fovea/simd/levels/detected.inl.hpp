// SPDX-License-Identifier: MIT
/// \file
/// A statement of `machine_isa_level` (simd/isa.hpp): selects a level compiled above the unit's own
/// if the machine supports it and every lower one.

#if FOVEA_LEVEL > FOVEA_UNIT_LEVEL
has_lower = has_lower && FOVEA_LEVEL_IS_ON_MACHINE;
if (has_lower) highest = IsaLevel::FOVEA_LEVEL_NAME;
#endif
