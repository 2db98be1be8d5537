// SPDX-License-Identifier: MIT
/// \file
/// The tables of all kernel families. Code that calls one family includes only its table.
#pragma once

#include "fovea/kernels/indexed/table.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/kernels/linear/table.hpp"
#include "fovea/kernels/sketch/table.hpp"
#include "fovea/kernels/softmax/table.hpp"
#include "fovea/kernels/sorting/table.hpp"
#include "fovea/kernels/spectral/table.hpp"
