// SPDX-License-Identifier: MIT
/// \file
/// The kernels of all families in one translation unit, as in a header-only program that uses every
/// family: names of different families must not collide.
#include <fovea/kernels/table.hpp>
