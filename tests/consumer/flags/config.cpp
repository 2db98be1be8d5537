// SPDX-License-Identifier: MIT
/// \file
/// What says which compilers and targets are refused, before any header of std: those of another
/// target need not be installed.
#include <fovea/core/config.hpp>

static_assert(sizeof(fovea::Index) == 8);
