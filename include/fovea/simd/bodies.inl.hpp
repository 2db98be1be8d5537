// SPDX-License-Identifier: MIT
/// \file
/// What any kernel body stands on, in the order of what uses what; compiled once per
/// instruction-set level, by the first use of foreach_level.hpp in a unit.

#include "fovea/simd/vec.inl.hpp"

#include "fovea/simd/math.inl.hpp"

#include "fovea/simd/storage.inl.hpp"

#include "fovea/simd/transpose.inl.hpp"

#include "fovea/simd/integers.inl.hpp"

#include "fovea/simd/register_block.inl.hpp"

#include "fovea/simd/stored_rows.inl.hpp"

#include "fovea/simd/rows_to_lanes.inl.hpp"

#include "fovea/simd/lane_sums.inl.hpp"

#include "fovea/simd/softmax_weight.inl.hpp"

#include "fovea/simd/philox.inl.hpp"

#include "fovea/simd/compress.inl.hpp"
