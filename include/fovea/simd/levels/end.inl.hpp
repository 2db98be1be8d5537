// SPDX-License-Identifier: MIT
/// \file
/// Undefines the macros of a level file.

#undef FOVEA_LEVEL
#undef FOVEA_LEVEL_NAME
#undef FOVEA_LEVEL_VEC_BYTES
#undef FOVEA_LEVEL_ARCH
#undef FOVEA_LEVEL_OPERATIONS
#undef FOVEA_LEVEL_TARGET
#undef FOVEA_LEVEL_IS_ON_MACHINE
