// SPDX-License-Identifier: MIT
/// \file
/// The checks of Sinkhorn attention.
#pragma once

#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/sinkhorn/options.hpp"

FOVEA_NAMESPACE_BEGIN

/// Checks q, k and v.
/// \throws std::invalid_argument
template <class T>
void check_sinkhorn_rows(const char* op, const SinkhornInputs<T>& inputs) {
  check_inputs(op, inputs);
  detail::check_extent(op, "k", inputs.k.shape(), 2, inputs.q.rows(),
                       "the rows of q: queries and keys are divided into the same blocks");
}

/// Checks the options, the number of rows and the key lengths.
/// \tparam T the type of the arithmetic
/// \throws std::invalid_argument
template <class T>
void check_sinkhorn_options(const char* op, const SinkhornOptions& options, Index rows,
                            IndexSpan key_lengths) {
  detail::check_scale<T>(op, "scale", options.scale);
  if (options.block < 1 || rows % options.block != 0) {
    refuse(op, "block", std::to_string(options.block),
           "a divisor of the " + std::to_string(rows) + " rows of q");
  }
  if (options.iterations < 0) {
    refuse(op, "iterations", std::to_string(options.iterations), "at least 0");
  }
  for (std::size_t b = 0; b < key_lengths.size(); ++b) {
    if (key_lengths[b] % options.block == 0) continue;
    refuse(op, "key_lengths[" + std::to_string(b) + "]", std::to_string(key_lengths[b]),
           "a multiple of " + std::to_string(options.block) + ", the rows of a block");
  }
}

/// Checks the sorting logits.
/// \param queries, keys the numbers of blocks: the rows and columns of R
/// \throws std::invalid_argument
template <class T>
void check_sorting(const char* op, const SinkhornInputs<T>& inputs, Index queries, Index keys) {
  const Shape& r = inputs.sorting.shape();
  if (inputs.sorting.empty() && inputs.k.batch() * inputs.k.heads() * queries == 0) return;
  if (inputs.sorting.empty()) {
    refuse_missing(op, "sorting", "[B, Hk, N / block, N / block], the sorting logits");
  }
  detail::check_extent(op, "sorting", r, 0, inputs.k.batch(), "the batch of k");
  detail::check_extent(op, "sorting", r, 1, inputs.k.heads(), "the heads of k");
  detail::check_extent(op, "sorting", r, 2, queries, "the blocks of q");
  detail::check_extent(op, "sorting", r, 3, keys, "the blocks of k");
}

/// Checks the options and inputs of Sinkhorn attention.
/// \throws std::invalid_argument
template <class T>
void check_sinkhorn_inputs(const char* op, const SinkhornOptions& options,
                           const SinkhornInputs<T>& inputs) {
  check_sinkhorn_rows(op, inputs);
  check_sinkhorn_options<T>(op, options, inputs.q.rows(), inputs.key_lengths);
  const Index blocks = inputs.q.rows() / options.block;
  check_sorting(op, inputs, blocks, blocks);
}

FOVEA_NAMESPACE_END
