// SPDX-License-Identifier: MIT
/// \file
/// The two causal steps of the backward pass (grad.hpp) for one of several row blocks of tokens and
/// rows.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/grad.inl.hpp"
#endif

/// Computes d_q and `saved` of a row block.
template <class T>
void linear_grad_block_rows(const LinearGradBlockArgs<T>& args) noexcept {
  const GradWidths<T> widths(args.of.width, args.of.value_width);
  GradSums<T> sums(widths.value_width, widths.d, widths.d, {args.carried}, !args.is_first);
  GradForwards<T>(args.of, args.map, {args.of.scratch}, true).run_row_block(sums, args.stays_open);
}

/// Computes d_k and d_v of a row block from `saved`.
template <class T>
void linear_grad_block_keys(const LinearGradBlockArgs<T>& args) noexcept {
  const GradWidths<T> widths(args.of.width, args.of.value_width);
  GradSums<T> sums(widths.width, widths.dv, widths.d, {args.carried}, !args.is_first);
  GradBackwards<T>(args.of, args.map, {args.of.scratch}, true).run_row_block(sums);
}
