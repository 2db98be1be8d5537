// SPDX-License-Identifier: MIT
/// \file
/// The tables of all families of kernels. Code that calls one family includes the table of that
/// family alone.
#pragma once

#include "fovea/kernels/indexed/table.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/kernels/linear/table.hpp"
#include "fovea/kernels/sketch/table.hpp"
#include "fovea/kernels/softmax/table.hpp"
#include "fovea/kernels/sorting/table.hpp"
#include "fovea/kernels/spectral/table.hpp"
