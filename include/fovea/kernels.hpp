// SPDX-License-Identifier: MIT
/// \file
/// The kernels: arithmetic on raw pointers, chosen per instruction-set level.
#pragma once

#include "fovea/kernels/table.hpp"
