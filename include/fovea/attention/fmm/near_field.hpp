// SPDX-License-Identifier: MIT
/// \file
/// The near field of FMM attention, computed for one block of queries after the other (FMMformer,
/// eq. 4).
#pragma once

#include "fovea/attention/linear/terms.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

/// The local attention of one call. A row has the same bits as in LocalAttention.
template <class T>
class NearBlocks {
 public:
  /// There is a near field.
  static constexpr bool kExists = true;

  /// \param inputs checked inputs
  /// \param op the near field alone
  NearBlocks(const LinearFamilyInputs<T>& inputs, const LocalAttention& op)
      : call_(only_rows(inputs), op.softmax_options()), plans_(op, call_) {}

  /// The inputs that the near field reads.
  static SoftmaxInputs<T> only_rows(const LinearFamilyInputs<T>& inputs) {
    return detail::inputs_as<SoftmaxInputs<T>>(inputs);
  }

  /// Elements of scratch that `attend` needs.
  static Index scratch_elements(const AttentionShape& shape) {
    return softmax_block_scratch(block_rows(shape.queries), shape.width, shape.value_width);
  }

  /// The number of blocks of query rows of a sequence.
  Index block_count(Index sequence) const { return plans_.plan(0, sequence, 0).block_count(); }

  /// Block b of a sequence: consecutive rows. Blocks ascend.
  QueryBlock block(Index sequence, Index b, BlockStorage& storage) const {
    return plans_.plan(0, sequence, 0).block(b, storage);
  }

  /// Computes one block of a query head.
  /// \param to [block.count, Dv], written
  /// \param scratch scratch_elements(...) elements, aligned to 64 bytes
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
