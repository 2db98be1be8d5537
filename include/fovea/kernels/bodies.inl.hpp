// SPDX-License-Identifier: MIT
/// \file
/// Every kernel body, in the order of what uses what; compiled once per instruction-set level.

#include "fovea/kernels/integers.inl.hpp"
#include "fovea/kernels/register_block.inl.hpp"
#include "fovea/kernels/stored_rows.inl.hpp"

#include "fovea/kernels/transpose.inl.hpp"
#include "fovea/kernels/visible_keys.inl.hpp"

#include "fovea/kernels/softmax_tile.inl.hpp"

#include "fovea/kernels/philox.inl.hpp"

#include "fovea/kernels/score_map.inl.hpp"

#include "fovea/kernels/score_map_tile.inl.hpp"

#include "fovea/kernels/running_softmax.inl.hpp"
#include "fovea/kernels/softmax_band.inl.hpp"
#include "fovea/kernels/softmax_block.inl.hpp"

#include "fovea/kernels/softmax_choice.inl.hpp"

#include "fovea/kernels/grad_pairs.inl.hpp"

#include "fovea/kernels/grad_tile.inl.hpp"

#include "fovea/kernels/grad_rows.inl.hpp"

#include "fovea/kernels/softmax_grad.inl.hpp"

#include "fovea/kernels/row_products.inl.hpp"

#include "fovea/kernels/softmax_row.inl.hpp"

#include "fovea/kernels/softmax_merge.inl.hpp"

/// The kernels of this level; it must be a value that needs no code of this level to be made.
template <class T>
inline constexpr KernelTable<T> kKernels = {&softmax_block<T>, &softmax_grad<T>, &packed_rows<T>,
                                            &scaled_rows<T>,   &sink_grad<T>,    &softmax_row<T>,
                                            &softmax_merge<T>};
