// SPDX-License-Identifier: MIT
/// \file
/// The near field of FMM attention, computed block by block (FMMformer, eq. 4).
#pragma once

#include "fovea/attention/linear/terms.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/softmax/table.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// The local attention of one call. A row has the same bits as in LocalAttention at v4 or below: at
/// v4_bf16 the kernels of v4 are used, because decoders keep the near field's keys and values in
/// the type of the arithmetic.
template <class T>
class NearBlocks {
 public:
  /// There is a near field.
  static constexpr bool kExists = true;

  /// \param inputs checked inputs
  /// \param op the near field alone
  /// \param saved output and lse are also written there
  NearBlocks(const LinearFamilyInputs<T>& inputs, const LocalAttention& op,
             const FmmSaved<T>& saved)
      : call_(only_rows(inputs), op.softmax_options()), plans_(op, call_), saved_(saved) {}

  /// The inputs that the near field reads.
  static SoftmaxInputs<T> only_rows(const LinearFamilyInputs<T>& inputs) {
    return detail::inputs_as<SoftmaxInputs<T>>(inputs);
  }

  /// Elements of scratch for `process_block`.
  static Index scratch_elements(const AttentionShape& shape) {
    return softmax_block_scratch(block_rows(shape.queries), shape.width, shape.value_width);
  }

  /// The number of blocks of query rows of a sequence.
  Index block_count(Index sequence) const { return plans_.plan(0, sequence, 0).block_count(); }

  /// Block b of a sequence: consecutive rows. Blocks ascend.
  QueryBlock block(Index sequence, Index b, BlockStorage& storage) const {
    return plans_.plan(0, sequence, 0).block(b, storage);
  }

  /// Computes one block of a query head, and saves the requested results.
  /// \param to [block.count, Dv], written
  /// \param scratch scratch_elements(...) elements, aligned to 64 bytes
  void process_block(const Sequence& sequence, Index head, const QueryBlock& block,
                     const OutputMatrix<kStorage<T>>& to, Compute<T>* scratch) const {
    HeadArgs<T> args = call_.args(sequence, head, View<T>{}, SoftmaxSaved<T>{});
    const Index first_row = sequence.first_query + block.first;
    args.q = detail::head_stored(call_.inputs().q, sequence.batch, head, first_row);
    args.out = to;
    if (!saved_.near_lse.empty()) {
      args.lse = detail::head_matrix(saved_.near_lse, sequence.batch, head, first_row);
    }
    args.first_position += block.first;
    args.block = block;
    args.block.first = 0;
    args.scratch = scratch;
    const SoftmaxKernels<Compute<T>, kStorage<T>> kernels{detail::common_level(isa_level())};
    kernels.band_block(args);
    if (!saved_.near_out.empty()) {
      keep(to, block.count, detail::head_matrix(saved_.near_out, sequence.batch, head, first_row));
    }
  }

 private:
  /// Copies rows in the type of the arithmetic.
  void keep(const OutputMatrix<kStorage<T>>& from, Index rows, const Matrix<Compute<T>>& to) const {
    const auto* const data = static_cast<const Compute<T>*>(from.data);
    for (Index n = 0; n < rows; ++n) {
      for (Index c = 0; c < saved_.near_out.width(); ++c) {
        to.data[n * to.row + c * to.column] = data[n * from.row + c * from.column];
      }
    }
  }

  SoftmaxCall<T> call_;
  HeadPlans plans_;
  FmmSaved<T> saved_;
};

FOVEA_NAMESPACE_END
