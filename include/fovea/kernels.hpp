// SPDX-License-Identifier: MIT
/// \file
/// Includes the kernels: arithmetic on raw pointers, with a choice of the instruction-set level.
#pragma once

#include "fovea/kernels/table.hpp"
