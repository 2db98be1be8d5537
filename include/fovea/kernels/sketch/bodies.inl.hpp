// SPDX-License-Identifier: MIT
/// \file
/// The kernel bodies of the choice of keys by a sketch, in dependency order, compiled once per
/// instruction-set level.

#include "fovea/kernels/sketch/unfused.inl.hpp"

#include "fovea/kernels/sketch/scores.inl.hpp"

#include "fovea/kernels/sketch/sampling.inl.hpp"

#include "fovea/kernels/sketch/candidates.inl.hpp"

#include "fovea/kernels/sketch/hits.inl.hpp"

#include "fovea/kernels/sketch/select.inl.hpp"

#include "fovea/kernels/sketch/block_bounds.inl.hpp"

#include "fovea/kernels/sketch/key_blocks.inl.hpp"

#include "fovea/kernels/sketch/select_blocks.inl.hpp"
