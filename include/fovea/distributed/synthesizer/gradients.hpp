// SPDX-License-Identifier: MIT
/// \file
/// The parts of distributed gradients of the Synthesizer's forms: those of softmax attention.
#pragma once

#include <exception>
#include <string>

#include "fovea/distributed/sharding.hpp"
#include "fovea/distributed/synthesizer/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// The distributed gradients of a form whose weights have rows by position: apart from softmax
/// attention, they need nothing from other ranks.
template <class Op, class T>
class SynthesizerRankGradients {
  using Logits = fovea::detail::SynthesizerLogits<Op, T>;

 public:
  /// Allocates memory for sums over sequences. \param grads this rank's
  /// \throws std::bad_alloc
  SynthesizerRankGradients(Logits& /*logits*/, const InputsOf<Op, T>& in,
                           const GradsOf<Op, T>& grads, const Sharding& /*rows*/,
                           const ExecutorRef& /*executor*/)
      : gradients_(in, grads, ExecutorRef().memory()) {}

  /// All ranges of rows are supported.
  static void check(const GradsOf<Op, T>& /*grads*/, const Sharding& /*rows*/) {}
  /// Ranks may request different gradients.
  static std::string text(const GradsOf<Op, T>& /*grads*/) { return {}; }

  /// The requested gradients of softmax attention.
  const SoftmaxGrads<T>& wanted() const { return gradients_.wanted(); }
  /// Computes the form's gradients from them.
  /// \param error an exception that was thrown before, or null   \returns the first exception, or
  /// null
  std::exception_ptr finish(Logits& logits, const std::exception_ptr& error,
                            const ExecutorRef& executor) {
    if (error) return error;
    return fovea::detail::caught([&] { gradients_.finish(logits, executor); });
  }

 private:
  fovea::detail::SynthesizerGradients<Op, T> gradients_;
};

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
