// SPDX-License-Identifier: MIT
/// \file
/// The near field of FMM attention, block of queries by block of queries (FMMformer, eq. 4).
#pragma once

#include "fovea/attention/linear/terms.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

/// Local attention of one call. A row has the bits that LocalAttention gives it.
template <class T>
class NearBlocks {
 public:
  static constexpr bool kExists = true;

  NearBlocks(const LinearFamilyInputs<T>& inputs, const LocalAttention& op)
      : call_(only_rows(inputs), op.softmax_options()), plans_(op, call_) {}

  /// The inputs that the near field reads.
  static SoftmaxInputs<T> only_rows(const LinearFamilyInputs<T>& inputs) {
    return detail::inputs_as<SoftmaxInputs<T>>(inputs);
  }

  /// Elements of scratch of one worker.
  static Index scratch_elements(const AttentionShape& shape) {
    return softmax_block_scratch(block_rows(shape.queries), shape.width, shape.value_width);
  }

  Index block_count(Index sequence) const { return plans_.plan(0, sequence, 0).block_count(); }

  /// Consecutive rows; blocks ascend.
  QueryBlock block(Index sequence, Index b, BlockStorage& storage) const {
    return plans_.plan(0, sequence, 0).block(b, storage);
  }

  /// \param to [block.count, Dv]   \param scratch scratch_elements, aligned to 64 bytes
  void attend(const Sequence& sequence, Index head, const QueryBlock& block,
              const OutputMatrix<kStorage<T>>& to, Compute<T>* scratch) const {
    HeadArgs<T> args = call_.args(sequence, head, View<T>{}, SoftmaxSaved<T>{});
    args.q = detail::head_stored(call_.inputs().q, sequence.batch, head,
                                 sequence.first_query + block.first);
    args.out = to;
    args.first_position += block.first;
    args.block = block;
    args.block.first = 0;
    args.scratch = scratch;
    SoftmaxKernels<Compute<T>, kStorage<T>>{}.block(args);
  }

 private:
  SoftmaxCall<T> call_;
  HeadPlans plans_;
};

FOVEA_NAMESPACE_END
