// SPDX-License-Identifier: MIT
/// \file
/// Every kernel body, in the order of what uses what; compiled once per instruction-set level.

#include "fovea/simd/integers.inl.hpp"

#include "fovea/simd/register_block.inl.hpp"

#include "fovea/simd/stored_rows.inl.hpp"

#include "fovea/simd/rows_to_lanes.inl.hpp"

#include "fovea/simd/lane_sums.inl.hpp"

#include "fovea/kernels/softmax/visible_keys.inl.hpp"

#include "fovea/kernels/softmax/tile.inl.hpp"

#include "fovea/simd/philox.inl.hpp"

#include "fovea/kernels/softmax/score_map.inl.hpp"

#include "fovea/kernels/softmax/score_map_tile.inl.hpp"

#include "fovea/kernels/softmax/running_softmax.inl.hpp"

#include "fovea/kernels/softmax/band.inl.hpp"

#include "fovea/kernels/softmax/block.inl.hpp"

#include "fovea/kernels/softmax/dispatch.inl.hpp"

#include "fovea/kernels/softmax/grad_pairs.inl.hpp"

#include "fovea/kernels/softmax/grad_tile.inl.hpp"

#include "fovea/kernels/softmax/grad_rows.inl.hpp"

#include "fovea/kernels/softmax/grad.inl.hpp"

#include "fovea/kernels/softmax/row_products.inl.hpp"

#include "fovea/kernels/softmax/row.inl.hpp"

#include "fovea/kernels/softmax/merge.inl.hpp"

#include "fovea/kernels/linear/feature_map.inl.hpp"

#include "fovea/kernels/linear/running_state.inl.hpp"

#include "fovea/kernels/linear/rows.inl.hpp"

#include "fovea/kernels/indexed/gather.inl.hpp"

#include "fovea/kernels/indexed/gather_short.inl.hpp"

#include "fovea/kernels/indexed/gather_grad.inl.hpp"

#include "fovea/kernels/indexed/normal_density.inl.hpp"

#include "fovea/kernels/linear/output.inl.hpp"

#include "fovea/kernels/linear/stream.inl.hpp"

#include "fovea/kernels/linear/read.inl.hpp"

#include "fovea/kernels/linear/delta_rows.inl.hpp"

#include "fovea/kernels/linear/delta_rule.inl.hpp"

#include "fovea/kernels/linear/grad_products.inl.hpp"

#include "fovea/kernels/linear/grad_state.inl.hpp"

#include "fovea/kernels/linear/grad_rows.inl.hpp"

#include "fovea/kernels/linear/grad_keys.inl.hpp"

#include "fovea/kernels/linear/grad.inl.hpp"

#include "fovea/kernels/linear/grad_total.inl.hpp"

#include "fovea/kernels/linear/delta_grad_rows.inl.hpp"

#include "fovea/kernels/linear/delta_grad.inl.hpp"

#include "fovea/simd/compress.inl.hpp"

#include "fovea/kernels/sketch/unfused.inl.hpp"

#include "fovea/kernels/sketch/scores.inl.hpp"

#include "fovea/kernels/sketch/sampling.inl.hpp"

#include "fovea/kernels/sketch/candidates.inl.hpp"

#include "fovea/kernels/sketch/select.inl.hpp"

#if defined(FOVEA_KERNELS_UNIT)
/// The kernels of this level; it must be a value that needs no code of this level to be made.
template <class T>
inline constexpr KernelTable<T> kKernels = {
#define FOVEA_KERNEL(kernel, Args) &kernel<T>,
    FOVEA_EACH_KERNEL(FOVEA_KERNEL)
#undef FOVEA_KERNEL
};
#endif
