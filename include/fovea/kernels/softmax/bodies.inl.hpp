// SPDX-License-Identifier: MIT
/// \file
/// The kernel bodies of softmax attention over patterns, in dependency order, compiled once per
/// instruction-set level.

#include "fovea/kernels/softmax/visible_keys.inl.hpp"

#include "fovea/kernels/softmax/tile.inl.hpp"

#include "fovea/kernels/softmax/pair_tile.inl.hpp"

#include "fovea/kernels/softmax/score_map.inl.hpp"

#include "fovea/kernels/softmax/score_modifier.inl.hpp"

#include "fovea/kernels/softmax/score_map_tile.inl.hpp"

#include "fovea/kernels/softmax/running_softmax.inl.hpp"

#include "fovea/kernels/softmax/band_rows.inl.hpp"

#include "fovea/kernels/softmax/band.inl.hpp"

#include "fovea/kernels/softmax/tile_rows.inl.hpp"

#include "fovea/kernels/softmax/block.inl.hpp"

#include "fovea/kernels/softmax/dispatch.inl.hpp"

#include "fovea/kernels/softmax/grad_pairs.inl.hpp"

#include "fovea/kernels/softmax/grad_tile.inl.hpp"

#include "fovea/kernels/softmax/grad_rows.inl.hpp"

#include "fovea/kernels/softmax/grad.inl.hpp"

#include "fovea/kernels/softmax/grad_copies.inl.hpp"

#include "fovea/kernels/softmax/row_points.inl.hpp"

#include "fovea/kernels/softmax/row_map.inl.hpp"

#include "fovea/kernels/softmax/row_products.inl.hpp"

#include "fovea/kernels/softmax/row.inl.hpp"

#include "fovea/kernels/softmax/merge.inl.hpp"
