// SPDX-License-Identifier: MIT
/// \file
/// The refusal of compilers and targets, before any standard header, since those of another target
/// may not be installed.
#include <fovea/core/config.hpp>

static_assert(sizeof(fovea::Index) == 8);
