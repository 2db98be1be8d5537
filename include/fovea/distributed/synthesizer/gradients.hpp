// SPDX-License-Identifier: MIT
/// \file
/// What the gradients of the forms of the Synthesizer over ranks are made of: those of softmax
/// attention.
#pragma once

#include <exception>
#include <string>

#include "fovea/distributed/synthesizer/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// What the gradients of a form whose weights have rows by position need beyond those of softmax
/// attention: nothing of other ranks.
template <class Grads>
class GradientsByPosition {
 public:
  /// Any rows will do.
  static void check(const Grads& /*grads*/, const Rows& /*rows*/) {}
  /// Ranks may want different ones.
  static std::string text(const Grads& /*grads*/) { return {}; }
  /// There are no messages.
  static Traffic traffic() { return {}; }
};

/// The gradients of a form, made of those of softmax attention.
template <class Op, class T>
class SynthesizerGradients;

/// R is a bias.
template <class T>
class SynthesizerGradients<RandomSynthesizerAttention, T>
    : public GradientsByPosition<RandomSynthesizerGrads<T>> {
 public:
  /// \param grads those that this rank wants
  template <class Made>
  SynthesizerGradients(Made& /*made*/, const RandomSynthesizerInputs<T>& /*in*/,
                       const RandomSynthesizerGrads<T>& grads, const Rows& /*rows*/,
                       const ExecutorRef& /*executor*/) {
    wanted_.v = grads.v;
    wanted_.bias = grads.r;
  }

  /// The gradients of softmax attention that are wanted.
  const SoftmaxGrads<T>& wanted() const { return wanted_; }
  /// There is nothing to make of them. \param error what was thrown before, or null
  static std::exception_ptr finish(const std::exception_ptr& error,
                                   const ExecutorRef& /*executor*/) {
    return error;
  }

 private:
  SoftmaxGrads<T> wanted_;
};

/// Rows of R1 are queries, and rows of R2 are keys: of all sequences or of each.
template <class T>
class SynthesizerGradients<FactorisedSynthesizerAttention, T>
    : public GradientsByPosition<FactorisedSynthesizerGrads<T>> {
 public:
  /// Takes memory for sums over sequences. \param grads those that this rank wants
  /// \throws std::bad_alloc
  template <class Made>
  SynthesizerGradients(Made& /*made*/, const FactorisedSynthesizerInputs<T>& in,
                       const FactorisedSynthesizerGrads<T>& grads, const Rows& /*rows*/,
                       const ExecutorRef& /*executor*/)
      : of_r1_(grads.r1, in.v.batch(), SystemMemory{}),
        of_r2_(grads.r2, in.v.batch(), SystemMemory{}) {
    wanted_.q = of_r1_.of_sequences();
    wanted_.k = of_r2_.of_sequences();
    wanted_.v = grads.v;
  }

  /// The gradients of softmax attention that are wanted.
  const SoftmaxGrads<T>& wanted() const { return wanted_; }
  /// Adds those of sequences up.
  /// \param error what was thrown before, or null   \returns what was thrown, or null
  std::exception_ptr finish(const std::exception_ptr& error, const ExecutorRef& executor) {
    if (error) return error;
    return fovea::detail::caught([&] {
      of_r1_.finish(executor);
      of_r2_.finish(executor);
    });
  }

 private:
  fovea::detail::BatchSum<T> of_r1_;
  fovea::detail::BatchSum<T> of_r2_;
  SoftmaxGrads<T> wanted_;
};

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
