// SPDX-License-Identifier: MIT
/// \file
/// The kernels of attention over sorted rows.
#pragma once

#include "fovea/kernels/sorting/sorting.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernels of rows sorted by hashes, for tensors of T.
template <class T>
struct HashedRowKernels {
  /// Finds the buckets of rows.
  void buckets(const BucketArgs<T>& args) const noexcept;
  /// Adds rows of one softmax to those of another.
  void merge_rows(const MergeRowsArgs<T>& args) const noexcept;
  /// Computes gradients of rows through their division by their lengths.
  void unit_row_grads(const UnitRowGradArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels that turn sorting logits into weights, for tensors of T.
template <class T>
struct SortingLogitKernels {
  /// Normalises columns of logarithms, or computes its gradient.
  void log_columns(const LogColumnsArgs<T>& args) const noexcept;
  /// Computes exponentials.
  void exponentials(const ExpArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_KERNEL_BODIES

#define FOVEA_LEVEL_BODY "fovea/kernels/sorting/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

FOVEA_KERNEL(HashedRowKernels, buckets, BucketArgs, find_buckets<T>)
FOVEA_KERNEL(HashedRowKernels, merge_rows, MergeRowsArgs, merge_rows<T>)
FOVEA_KERNEL(HashedRowKernels, unit_row_grads, UnitRowGradArgs, unit_row_grads<T>)
FOVEA_KERNELS(HashedRowKernels)

FOVEA_KERNEL(SortingLogitKernels, log_columns, LogColumnsArgs, log_columns<T>)
FOVEA_KERNEL(SortingLogitKernels, exponentials, ExpArgs, exponentials<T>)
FOVEA_KERNELS(SortingLogitKernels)

FOVEA_NAMESPACE_END

#endif
