// SPDX-License-Identifier: MIT
/// \file
/// A statement of `machine_isa_level` (simd/isa.hpp): takes a level that this unit compiles above
/// its own, if the machine has it and every lower one.

#if FOVEA_LEVEL > FOVEA_UNIT_LEVEL
has_lower = has_lower && FOVEA_LEVEL_IS_ON_MACHINE;
if (has_lower) highest = IsaLevel::FOVEA_LEVEL_NAME;
#endif
