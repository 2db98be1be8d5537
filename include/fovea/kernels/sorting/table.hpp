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

template <class T>
void HashedRowKernels<T>::buckets(const BucketArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, find_buckets<T>)(args);
}
template <class T>
void HashedRowKernels<T>::merge_rows(const MergeRowsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, merge_rows<T>)(args);
}
template <class T>
void HashedRowKernels<T>::unit_row_grads(const UnitRowGradArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, unit_row_grads<T>)(args);
}
FOVEA_KERNELS(HashedRowKernels)

template <class T>
void SortingLogitKernels<T>::log_columns(const LogColumnsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, log_columns<T>)(args);
}
template <class T>
void SortingLogitKernels<T>::exponentials(const ExpArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, exponentials<T>)(args);
}
FOVEA_KERNELS(SortingLogitKernels)

FOVEA_NAMESPACE_END

#endif
