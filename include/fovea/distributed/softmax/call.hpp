// SPDX-License-Identifier: MIT
/// \file
/// Requirements on operators of both distributed passes of softmax attention.
#pragma once

#include <concepts>
#include <span>
#include <string>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/distributed/messages/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// An operator of softmax attention of a sequence to itself over a pattern, which reads
/// SoftmaxInputs.
template <class Op, class T>
concept PatternAttention = std::derived_from<Op, SoftmaxOperator<Op>> &&
    std::same_as<InputsOf<Op, T>, SoftmaxInputs<T>> && !requires {
  requires Op::kIsCross;
};

namespace detail {

/// The shape passed to the operator's pattern.
inline SequenceShape whole_sequence(const SoftmaxPatterns& op, const Sharding& rows) {
  return SequenceShape::of(rows.count(), rows.count(), op.options().alignment);
}

/// Describes the gradients of softmax attention that must be requested alike on all ranks.
template <class T>
std::string grads_text(const SoftmaxOutGrads<T>& d, std::span<T> d_sink) {
  std::string text;
  if (!d.d_lse.empty()) text.append(", d_lse");
  if (!d_sink.empty()) text.append(", gradients of sinks");
  return text;
}

}  // namespace detail

}  // namespace distributed

FOVEA_NAMESPACE_END
