// SPDX-License-Identifier: MIT
/// \file
/// The kernel bodies of attention to gathered keys, in dependency order, compiled once per
/// instruction-set level.

#include "fovea/kernels/indexed/rows.inl.hpp"

#include "fovea/kernels/indexed/short_rows.inl.hpp"

#include "fovea/kernels/indexed/phases.inl.hpp"

#include "fovea/kernels/indexed/grad.inl.hpp"

#include "fovea/kernels/indexed/normal_density.inl.hpp"

#include "fovea/kernels/indexed/random_points.inl.hpp"
