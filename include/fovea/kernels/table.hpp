// SPDX-License-Identifier: MIT
/// \file
/// The tables of all families of kernels. Who calls one family includes its table alone.
#pragma once

#include "fovea/kernels/indexed/table.hpp"
#include "fovea/kernels/linear/table.hpp"
#include "fovea/kernels/sketch/table.hpp"
#include "fovea/kernels/softmax/table.hpp"
