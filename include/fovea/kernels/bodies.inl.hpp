// SPDX-License-Identifier: MIT
/// \file
/// Every kernel body, in the order of what uses what; compiled once per instruction-set level.

#include "fovea/kernels/integers.inl.hpp"
#include "fovea/kernels/register_block.inl.hpp"
#include "fovea/kernels/stored_rows.inl.hpp"

#include "fovea/kernels/transpose.inl.hpp"

#include "fovea/kernels/lane_sums.inl.hpp"
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

#include "fovea/kernels/feature_map.inl.hpp"

#include "fovea/kernels/running_state.inl.hpp"

#include "fovea/kernels/linear_rows.inl.hpp"

#include "fovea/kernels/gather.inl.hpp"

#include "fovea/kernels/gather_short.inl.hpp"

#include "fovea/kernels/gather_grad.inl.hpp"

#include "fovea/kernels/normal_density.inl.hpp"

#include "fovea/kernels/linear_output.inl.hpp"

#include "fovea/kernels/linear_stream.inl.hpp"

#include "fovea/kernels/linear_read.inl.hpp"

#include "fovea/kernels/delta_rows.inl.hpp"

#include "fovea/kernels/delta_rule.inl.hpp"

#include "fovea/kernels/linear_grad_products.inl.hpp"

#include "fovea/kernels/linear_grad_state.inl.hpp"

#include "fovea/kernels/linear_grad_rows.inl.hpp"

#include "fovea/kernels/linear_grad_keys.inl.hpp"

#include "fovea/kernels/linear_grad.inl.hpp"

#include "fovea/kernels/linear_grad_total.inl.hpp"

#include "fovea/kernels/delta_grad_rows.inl.hpp"

#include "fovea/kernels/delta_rule_grad.inl.hpp"

#include "fovea/kernels/compress.inl.hpp"
#include "fovea/kernels/unfused.inl.hpp"

#include "fovea/kernels/sketch_scores.inl.hpp"

#include "fovea/kernels/sketch_sampling.inl.hpp"

#include "fovea/kernels/sketch_candidates.inl.hpp"

#include "fovea/kernels/sketch_select.inl.hpp"

#if defined(FOVEA_KERNELS_UNIT)
/// The kernels of this level; it must be a value that needs no code of this level to be made.
template <class T>
inline constexpr KernelTable<T> kKernels = {
#define FOVEA_KERNEL(kernel, Args) &kernel<T>,
    FOVEA_EACH_KERNEL(FOVEA_KERNEL)
#undef FOVEA_KERNEL
};
#endif
