// SPDX-License-Identifier: MIT
/// \file
/// The loss of a classifier: softmax cross entropy, and its gradient.
#pragma once

#include <cmath>
#include <vector>

#include "fovea/layers/elementwise.hpp"

FOVEA_NAMESPACE_BEGIN

/// The target of a row that counts neither in the loss nor in its mean.
inline constexpr Index kNoTarget = -1;

namespace detail {

/// Returns log(sum exp(x)) - x[target]. If d is given, it becomes d[c] = share
/// (softmax(x)[c] - [c == target]).
template <class T>
double cross_entropy_row(const T* x, Index classes, Index target, T* d, double share) {
  double most = -std::numeric_limits<double>::infinity();
  for (Index c = 0; c < classes; ++c) most = (std::max)(most, static_cast<double>(x[c]));
  double sum = 0;
  for (Index c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(x[c]) - most);
  if (d != nullptr) {
    for (Index c = 0; c < classes; ++c) {
      const double weight = std::exp(static_cast<double>(x[c]) - most) / sum;
      d[c] = static_cast<T>(share * (weight - (c == target ? 1 : 0)));
    }
  }
  return std::log(sum) + most - static_cast<double>(x[target]);
}

/// Checks what softmax_cross_entropy takes.
/// \throws std::invalid_argument if it does not go together
template <class T>
void check_targets(const View<const T>& logits, std::span<const Index> targets,
                   const View<T>& d_logits) {
  constexpr const char* name = "softmax_cross_entropy";
  check_activations(name, "logits", logits, logits.width());
  if (!d_logits.is_none()) {
    check_alike(name, "d_logits", d_logits, logits.width(), logits);
    check_written(name, "d_logits", d_logits, "logits", logits);
  }
  if (static_cast<Index>(targets.size()) != logits.batch() * logits.rows()) {
    refuse(name, "the number of targets", std::to_string(targets.size()),
           std::to_string(logits.batch() * logits.rows()) + ", batch times rows of logits");
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] >= kNoTarget && targets[i] < logits.width()) continue;
    refuse(name, "target " + std::to_string(i), std::to_string(targets[i]),
           "0 to " + std::to_string(logits.width() - 1) + ", or kNoTarget");
  }
}

}  // namespace detail

/// Returns the mean of -log softmax(logits)[target] over the rows that have a target, or 0 if no
/// row has one. It is computed in double whatever T is, with two exponentials per element.
/// \param logits [B, 1, L, classes] with dense rows
/// \param targets [B L] a class for each row, or kNoTarget
/// \param d_logits the gradient with respect to the logits, written if it is given
/// \throws std::invalid_argument if these do not go together, before anything is written
template <class T, class E = Serial>
double softmax_cross_entropy(const std::type_identity_t<View<const T>>& logits,
                             std::span<const Index> targets, const View<T>& d_logits,
                             E&& executor = {}) {
  detail::check_targets(logits, targets, d_logits);
  const auto counted = static_cast<double>(
      std::count_if(targets.begin(), targets.end(), [](Index t) { return t != kNoTarget; }));
  const double share = 1 / (std::max)(1.0, counted);
  std::vector<double> losses(targets.size());
  detail::for_each_row_block(as_executor(executor), logits.batch(), logits.rows(),
                             [&](Index b, Index first, Index count) {
                               for (Index n = first; n < first + count; ++n) {
                                 const auto row = static_cast<std::size_t>(b * logits.rows() + n);
                                 T* const d = d_logits.is_none() ? nullptr : &d_logits(b, 0, n, 0);
                                 if (targets[row] != kNoTarget) {
                                   losses[row] = detail::cross_entropy_row(
                                       &logits(b, 0, n, 0), logits.width(), targets[row], d, share);
                                 } else if (d != nullptr) {
                                   std::fill_n(d, logits.width(), T{0});
                                 }
                               }
                             });
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum * share;
}

FOVEA_NAMESPACE_END
