// SPDX-License-Identifier: MIT
/// \file
/// The kernels of all families stand in one unit, as in a program of headers alone that calls
/// layers and operators of every family: no name of one family hides or doubles one of another.
#include <fovea/kernels/table.hpp>
