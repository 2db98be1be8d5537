// SPDX-License-Identifier: MIT
/// \file
/// The loss of a classifier: softmax cross entropy, and its gradient.
#pragma once

#include <vector>

#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/layer_check.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// The target of a row that is ignored by the loss and its mean.
inline constexpr Index kNoTarget = -1;

namespace detail {

/// Checks the arguments of softmax_cross_entropy.
/// \throws std::invalid_argument if they are inconsistent
template <class T>
void check_targets(const View<const T>& logits, IndexSpan targets, const View<T>& d_logits) {
  constexpr const char* name = "softmax_cross_entropy";
  check_activations(name, "logits", logits, logits.width());
  if (!d_logits.empty()) {
    check_alike(name, "d_logits", d_logits, logits.width(), logits);
    check_written(name, "d_logits", d_logits, "logits", logits);
  }
  if (static_cast<Index>(targets.size()) != logits.batch() * logits.rows()) {
    refuse(name, "the number of targets", std::to_string(targets.size()),
           std::to_string(logits.batch() * logits.rows()) + ", the batch times the rows of logits");
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] >= kNoTarget && targets[i] < logits.width()) continue;
    refuse(name, "target " + std::to_string(i), std::to_string(targets[i]),
           range_text<Index>(0, logits.width() - 1) + ", the classes, or kNoTarget");
  }
}

}  // namespace detail

/// Returns the mean of -log softmax(logits)[target] over the rows that have a target, or 0 if no
/// row has one. It is computed in double for every T, with two exponentials per element.
/// \param logits [B, 1, L, classes] with dense rows
/// \param targets [B L] a class for each row, or kNoTarget: integers of 32 or 64 bits
/// \param d_logits the gradient with respect to the logits, written if given
/// \throws std::invalid_argument if they are inconsistent, before anything is written
template <class T, class E = Serial>
double softmax_cross_entropy(const std::type_identity_t<View<const T>>& logits, IndexSpan targets,
                             const View<T>& d_logits, E&& executor = {}) {
  detail::check_targets(logits, targets, d_logits);
  const auto at = [&](Index b, Index n) { return static_cast<std::size_t>(b * logits.rows() + n); };
  const double counted = detail::sum_of_tokens(logits, executor, [&](Index b, Index n) {
    return targets[at(b, n)] == kNoTarget ? 0.0 : 1.0;
  });
  const double share = 1 / (std::max)(1.0, counted);
  std::vector<double> losses(targets.size());
  const LayerKernels<T> kernels;
  constexpr double products = 256;  // cost of an element's exponentials in double
  const double of_row = products * static_cast<double>(logits.width());
  detail::for_each_row_block(
      as_executor(executor), logits.batch(), logits.rows(), of_row,
      [&](Index b, Index first, Index count) {
        const std::size_t row = at(b, first);
        kernels.cross_entropy({.x = detail::row_at(logits, b, first),
                               .x_row = logits.strides()[2],
                               .targets = targets.subspan(row, static_cast<std::size_t>(count)),
                               .d = d_logits.empty() ? nullptr : detail::row_at(d_logits, b, first),
                               .d_row = d_logits.empty() ? 0 : d_logits.strides()[2],
                               .losses = &losses[row],
                               .rows = count,
                               .classes = logits.width(),
                               .share = share});
      });
  const auto loss = [&](Index b, Index n) { return losses[at(b, n)]; };
  return detail::sum_of_tokens(logits, executor, loss) * share;
}

FOVEA_NAMESPACE_END
