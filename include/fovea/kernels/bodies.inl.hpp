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

/// The kernels of this level; it must be a value that needs no code of this level to be made.
template <class T>
inline constexpr KernelTable<T> kKernels = {&softmax_block<T>,
                                            &softmax_grad<T>,
                                            &packed_rows<T>,
                                            &scaled_rows<T>,
                                            &sink_grad<T>,
                                            &softmax_row<T>,
                                            &softmax_merge<T>,
                                            &linear_stream<T>,
                                            &linear_sum<T>,
                                            &linear_fold<T>,
                                            &linear_read<T>,
                                            &linear_grad_causal_rows<T>,
                                            &linear_grad_causal_keys<T>,
                                            &linear_grad_rows<T>,
                                            &linear_grad_keys<T>,
                                            &delta_stream<T>,
                                            &delta_grad<T>,
                                            &gather<T>,
                                            &gather_grad_rows<T>,
                                            &gather_grad_keys<T>,
                                            &sketch_select<T>,
                                            &normal_density<T>};
