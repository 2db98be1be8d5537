// SPDX-License-Identifier: MIT
/// \file
/// The common dependencies of kernel bodies, in dependency order; compiled once per instruction-set
/// level, by simd/vec.hpp.

#include "fovea/simd/vec.inl.hpp"

#include "fovea/simd/float16.inl.hpp"

#include "fovea/simd/vec_operations.inl.hpp"

#include "fovea/simd/math.inl.hpp"

#include "fovea/simd/wide.inl.hpp"

#include "fovea/simd/storage.inl.hpp"

#include "fovea/simd/transpose.inl.hpp"

#include "fovea/simd/integers.inl.hpp"

#include "fovea/simd/register_block.inl.hpp"

#include "fovea/simd/stored_rows.inl.hpp"

#include "fovea/simd/rows_to_lanes.inl.hpp"

#include "fovea/simd/pairs.inl.hpp"

#include "fovea/simd/row_dots.inl.hpp"

#include "fovea/simd/lane_sums.inl.hpp"

#include "fovea/simd/softmax_weight.inl.hpp"

#include "fovea/simd/philox.inl.hpp"
