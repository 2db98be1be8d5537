// SPDX-License-Identifier: MIT
/// \file
/// The kernels of linear attention and of the delta rule, one function per pass.
#pragma once

#include "fovea/kernels/linear/delta_rule.hpp"
#include "fovea/kernels/linear/grad.hpp"
#include "fovea/kernels/linear/grad_shared.hpp"
#include "fovea/kernels/linear/linear.hpp"
#include "fovea/kernels/linear/random_features.hpp"
#include "fovea/kernels/linear/segments.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernels of forward passes and decoding, for tensors computed in T and stored in S.
template <class T, Storage S = Storage::native>
struct LinearKernels {
  /// Causal: adds tokens to a state, which rows read in between.
  void stream(const LinearStreamArgs<T, S>& args) const noexcept;
  /// Causal: sums the chunks of one segment of tokens.
  void chunks(const LinearChunkArgs<T, S>& args) const noexcept;
  /// Causal: computes the states at the starts of segments with summed chunks.
  void starts(const LinearStartArgs<T>& args) const noexcept;
  /// Not causal: computes the sums of one segment of tokens.
  void sum(const LinearSumArgs<T, S>& args) const noexcept;
  /// Not causal: adds the sums of all segments, and rounds once.
  void fold(const LinearFoldArgs<T>& args) const noexcept;
  /// Not causal: computes rows that all see the same tokens.
  void read(const LinearReadArgs<T, S>& args) const noexcept;
  /// The delta rule: adds tokens to a state, which rows read in between.
  void delta_stream(const DeltaStreamArgs<T, S>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels of backward passes, for tensors of T.
template <class T>
struct LinearGradKernels {
  /// Causal: computes the gradients of queries.
  void causal_rows(const LinearGradCausalArgs<T>& args) const noexcept;
  /// Causal: computes the gradients of keys and values.
  void causal_keys(const LinearGradCausalArgs<T>& args) const noexcept;
  /// Causal: computes the sums of products of rows and gradients, from the records of causal_rows
  /// or part_reads.
  void causal_products(const LinearGradCausalArgs<T>& args) const noexcept;
  /// Causal, divided: computes the products of a part of the chunks.
  void part_sums(const LinearGradPartArgs<T>& args) const noexcept;
  /// Causal, divided: turns products into the states before chunks.
  void chain(const LinearGradChainArgs<T>& args) const noexcept;
  /// Causal, divided: computes the gradients of a part of the chunks from their states.
  void part_reads(const LinearGradPartArgs<T>& args) const noexcept;
  /// Causal, in row blocks: computes the gradients of queries.
  void block_of_rows(const LinearGradBlockArgs<T>& args) const noexcept;
  /// Causal, in row blocks: computes the gradients of keys and values.
  void block_of_keys(const LinearGradBlockArgs<T>& args) const noexcept;
  /// Not causal: computes the gradients of queries, and the sums for those of keys.
  void rows(const LinearGradRowsArgs<T>& args) const noexcept;
  /// Not causal: computes the gradients of keys and values.
  void keys(const LinearGradKeysArgs<T>& args) const noexcept;
  /// Computes all gradients of the delta rule.
  void delta(const DeltaGradArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels of positive random features, for tensors of T.
template <class T>
struct RandomFeatureKernels {
  /// Prepares a projection for the other kernels.
  void pack(const ProjectionArgs<T>& args) const noexcept;
  /// Computes the logits of rows.
  void logits(const FeatureLogitsArgs<T>& args) const noexcept;
  /// Turns logits of keys into features, up to the first above the reference.
  void keys(FeatureRowsArgs<T>& args) const noexcept;
  /// Turns logits of queries into features.
  void queries(const FeatureRowsArgs<T>& args) const noexcept;
  /// Sets the reference to the largest logits of keys, or raises it.
  void maxima(const FeatureRowsArgs<T>& args) const noexcept;
  /// Raises a running reference.
  void raise(const RaiseReferenceArgs<T>& args) const noexcept;
  /// Multiplies a stream's sums.
  void scale(const ScaleStreamArgs<T>& args) const noexcept;
  /// Rescales the sums of segments to one reference.
  void join(const JoinReferencesArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels of the backward pass of positive random features, for tensors of T.
template <class T>
struct RandomFeatureGradKernels {
  /// Propagates gradients of features to rows and to the projection.
  void rows(const FeatureGradArgs<T>& args) const noexcept;
  /// Sums parts of the gradient of a projection.
  void projection(const ProjectionGradArgs<T>& args) const noexcept;
  /// Multiplies the state carried between row blocks.
  void scale(const LinearGradScaleArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_KERNEL_BODIES

#define FOVEA_LEVEL_BODY "fovea/kernels/linear/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

FOVEA_STORED_KERNEL(LinearKernels, stream, LinearStreamArgs, linear_stream<T, S>)
FOVEA_STORED_KERNEL(LinearKernels, chunks, LinearChunkArgs, linear_chunks<T, S>)
template <class T, Storage S>
void LinearKernels<T, S>::starts(const LinearStartArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, linear_starts<T>)(args);
}
FOVEA_STORED_KERNEL(LinearKernels, sum, LinearSumArgs, linear_sum<T, S>)
template <class T, Storage S>
void LinearKernels<T, S>::fold(const LinearFoldArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, linear_fold<T>)(args);
}
FOVEA_STORED_KERNEL(LinearKernels, read, LinearReadArgs, linear_read<T, S>)
FOVEA_STORED_KERNEL(LinearKernels, delta_stream, DeltaStreamArgs, delta_stream<T, S>)
FOVEA_STORED_KERNELS(LinearKernels)

FOVEA_KERNEL(LinearGradKernels, causal_rows, LinearGradCausalArgs, linear_grad_causal_rows<T>)
FOVEA_KERNEL(LinearGradKernels, causal_keys, LinearGradCausalArgs, linear_grad_causal_keys<T>)
FOVEA_KERNEL(LinearGradKernels, causal_products, LinearGradCausalArgs,
             linear_grad_causal_products<T>)
FOVEA_KERNEL(LinearGradKernels, part_sums, LinearGradPartArgs, linear_grad_part_sums<T>)
FOVEA_KERNEL(LinearGradKernels, chain, LinearGradChainArgs, linear_grad_chain<T>)
FOVEA_KERNEL(LinearGradKernels, part_reads, LinearGradPartArgs, linear_grad_part_reads<T>)
FOVEA_KERNEL(LinearGradKernels, block_of_rows, LinearGradBlockArgs, linear_grad_block_rows<T>)
FOVEA_KERNEL(LinearGradKernels, block_of_keys, LinearGradBlockArgs, linear_grad_block_keys<T>)
FOVEA_KERNEL(LinearGradKernels, rows, LinearGradRowsArgs, linear_grad_rows<T>)
FOVEA_KERNEL(LinearGradKernels, keys, LinearGradKeysArgs, linear_grad_keys<T>)
FOVEA_KERNEL(LinearGradKernels, delta, DeltaGradArgs, delta_grad<T>)
FOVEA_KERNELS(LinearGradKernels)

FOVEA_KERNEL(RandomFeatureKernels, pack, ProjectionArgs, pack_projection<T>)
FOVEA_KERNEL(RandomFeatureKernels, logits, FeatureLogitsArgs, feature_logits<T>)
template <class T>
void RandomFeatureKernels<T>::keys(FeatureRowsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, key_features<T>)(args);
}
FOVEA_KERNEL(RandomFeatureKernels, queries, FeatureRowsArgs, query_features<T>)
FOVEA_KERNEL(RandomFeatureKernels, maxima, FeatureRowsArgs, feature_maxima<T>)
FOVEA_KERNEL(RandomFeatureKernels, raise, RaiseReferenceArgs, raise_reference<T>)
FOVEA_KERNEL(RandomFeatureKernels, scale, ScaleStreamArgs, scale_stream<T>)
FOVEA_KERNEL(RandomFeatureKernels, join, JoinReferencesArgs, join_references<T>)
FOVEA_KERNELS(RandomFeatureKernels)

FOVEA_KERNEL(RandomFeatureGradKernels, rows, FeatureGradArgs, feature_grad<T>)
FOVEA_KERNEL(RandomFeatureGradKernels, projection, ProjectionGradArgs, projection_grad<T>)
FOVEA_KERNEL(RandomFeatureGradKernels, scale, LinearGradScaleArgs, scale_carried<T>)
FOVEA_KERNELS(RandomFeatureGradKernels)

FOVEA_NAMESPACE_END

#endif
