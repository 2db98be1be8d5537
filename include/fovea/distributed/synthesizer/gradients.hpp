// SPDX-License-Identifier: MIT
/// \file
/// The parts of distributed gradients of the Synthesizer's forms: those of softmax attention.
#pragma once

#include <exception>
#include <string>

#include "fovea/distributed/synthesizer/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// The gradients of a form over ranks. This is for forms whose weights have rows by position: they
/// need nothing of other ranks beyond the gradients of softmax attention.
template <class Op, class T>
class SynthesizerRankGradients {
  using Logits = fovea::detail::SynthesizerLogits<Op, T>;

 public:
  /// Takes memory for sums over sequences. \param grads those that this rank wants
  /// \throws std::bad_alloc
  SynthesizerRankGradients(Logits& /*logits*/, const InputsOf<Op, T>& in,
                           const GradsOf<Op, T>& grads, const Sharding& /*rows*/,
                           const ExecutorRef& /*executor*/)
      : gradients_(in, grads, ExecutorRef().memory()) {}

  /// Any rows will do.
  static void check(const GradsOf<Op, T>& /*grads*/, const Sharding& /*rows*/) {}
  /// Ranks may want different ones.
  static std::string text(const GradsOf<Op, T>& /*grads*/) { return {}; }

  /// The requested gradients of softmax attention.
  const SoftmaxGrads<T>& wanted() const { return gradients_.wanted(); }
  /// There are no messages.
  static CommStats comm_stats() { return {}; }
  /// Makes the others from them.
  /// \param error what was thrown before, or null   \returns what was thrown, or null
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
