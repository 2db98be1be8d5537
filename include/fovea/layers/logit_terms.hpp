// SPDX-License-Identifier: MIT
/// \file
/// A layer's inputs to an operator besides q, k and v: the call's bias, mask and packed sequences,
/// ALiBi's slopes, and learned sinks.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "fovea/attention/call/check.hpp"
#include "fovea/layers/layer_check.hpp"
#include "fovea/layers/layer_parts.hpp"

FOVEA_NAMESPACE_BEGIN

/// The slopes of ALiBi (Press, Smith and Lewis 2022) for H heads: 2^(-8/n), 2^(-16/n), ..., 2^-8
/// for the largest power of two n that is at most H, and for heads from n on, every second slope of
/// those for 2 n, starting with the first, as in the authors' code.
inline std::vector<double> alibi_slopes(Index heads) {
  std::vector<double> slopes;
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  for (Index h = 0; h < heads; ++h) {
    const Index numerator = h < power ? 8 * (h + 1) : 4 * (2 * (h - power) + 1);
    slopes.push_back(std::exp2(-static_cast<double>(numerator) / static_cast<double>(power)));
  }
  return slopes;
}

/// Options of LogitTerms.
struct LogitOptions {
  bool alibi = false;  ///< whether distances are subtracted from the logits, with ALiBi's slopes
  bool sinks = false;  ///< whether each head learns an extra logit, without a value
};

/// Sequences must be whole tensors, have key lengths, or be packed into one tensor.
/// \param rows the rows of the sequence, of which x may be a part
/// \throws std::invalid_argument if lengths or ends are out of range, or both are given
template <class T>
void check_sequences(const char* layer, const Tokens<T>& tokens, Index rows) {
  if (tokens.cu_seqlens.empty()) return check_lengths(layer, tokens, rows);
  if (tokens.x.batch() != 1) {
    refuse_extent(layer, "x", tokens.x.shape(), 0, "1, since cu_seqlens is given");
  }
  if (!tokens.key_lengths.empty()) {
    refuse_given(layer, "key_lengths", "cu_seqlens determines the lengths");
  }
  detail::check_cu_seqlens(layer, "cu_seqlens", tokens.cu_seqlens, rows, "x");
}

/// Passes an operator the logit terms of tokens and layer, and receives the gradients. Terms that
/// the operator does not read are rejected.
template <class T>
class LogitTerms : public LayerParts<LogitTerms<T>> {
 public:
  Parameter<T> sinks;  ///< [1, H] the learned logits, initially 0; [1, 0] if none

  /// Buffers for gradients.
  struct Saved {
    Buffer<T> d_sinks;  ///< [1, 1, 1, H] the gradient of the sinks
    Buffer<T> d_bias;   ///< the shape of the bias: its gradient
  };

  /// No terms.
  LogitTerms() = default;

  /// \tparam Inputs the operator's \param layer, op names for messages
  /// \throws std::invalid_argument if the operator does not read a requested term
  template <class Inputs>
  static LogitTerms of(const char* layer, const char* op, const LogitOptions& options,
                       Index heads) {
    LogitTerms made;
    if constexpr (!kReadsLogits<Inputs>) {
      const std::string expected = std::string("false: ") + op + " does not read it";
      if (options.alibi) refuse(layer, "alibi", "true", expected);
      if (options.sinks) refuse(layer, "sinks", "true", expected);
    }
    if (options.sinks) made.sinks = Parameter<T>("sinks", 1, heads);
    if (options.alibi) {
      for (const double slope : alibi_slopes(heads)) made.slopes_.push_back(static_cast<T>(slope));
    }
    return made;
  }

  /// Lists the sinks, if any.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    if (self.sinks.value.size() != 0) f(self.sinks);
  }

  /// Sets the terms in an operator's inputs.
  /// \throws std::invalid_argument if the tokens have a term that the operator does not read
  template <class Inputs>
  void attach(const char* op, const Tokens<T>& tokens, Inputs& inputs) const {
    inputs.key_lengths = tokens.key_lengths;
    if constexpr (requires { inputs.cu_seqlens_q; }) {
      inputs.cu_seqlens_q = tokens.cu_seqlens;
    } else if (!tokens.cu_seqlens.empty()) {
      refuse_given(op, "cu_seqlens", "the operator does not read it");
    }
    if constexpr (kReadsLogits<Inputs>) {
      inputs.bias = tokens.bias;
      inputs.mask = tokens.mask;
      inputs.alibi_slopes = slopes_;
      inputs.sink = {sinks.value.data(), static_cast<std::size_t>(sinks.value.size())};
    } else {
      check_not_given(op, "bias", tokens.bias);
      check_not_given(op, "mask", tokens.mask);
    }
    if constexpr (!requires { inputs.indices; }) check_not_given(op, "indices", tokens.indices);
    if constexpr (requires { inputs.random; }) {
      inputs.random = tokens.random;
    } else {
      check_not_given(op, "dominant", tokens.dominant);
      check_not_given(op, "random", tokens.random);
    }
  }

  /// Requests the gradients of the sinks, and of the bias if the tokens have d_bias.
  template <class Grads>
  void request_grads(const Tokens<T>& tokens, Saved& saved, Grads& grads) const {
    if constexpr (requires { grads.sink; }) {
      if (!tokens.d_bias.empty()) grads.bias = saved.d_bias.resize(tokens.bias.shape());
      if (sinks.value.size() == 0) return;
      const auto count = static_cast<std::size_t>(sinks.value.size());
      grads.sink = {saved.d_sinks.resize(1, 1, sinks.value.size()).data(), count};
    }
  }

  /// Adds these gradients to the sinks' gradient and to d_bias.
  template <class E>
  void finish(const Tokens<T>& tokens, Saved& saved, E&& executor) {
    for (Index h = 0; h < sinks.value.cols(); ++h) {
      sinks.gradient_sum()(0, h) += saved.d_sinks.view()(0, 0, 0, h);
    }
    const View<T>& to = tokens.d_bias;
    if (to.empty()) return;
    const View<T> from = saved.d_bias.view();
    const auto threads = for_work(executor, [&] { return static_cast<double>(4 * to.size()); });
    for_each_task(threads, to.batch() * to.heads(), [&](Index task, Index /*worker*/) {
      const Index b = task / to.heads();
      const Index h = task % to.heads();
      for (Index i = 0; i < to.rows(); ++i) {
        for (Index j = 0; j < to.width(); ++j) to(b, h, i, j) += from(b, h, i, j);
      }
    });
  }

 private:
  /// Whether an operator with these inputs reads logit terms.
  template <class Inputs>
  static constexpr bool kReadsLogits = requires(Inputs inputs) {
    inputs.bias;
    inputs.mask;
    inputs.alibi_slopes;
    inputs.sink;
  };

  template <class U>
  static void check_not_given(const char* op, const char* tensor, const View<U>& x) {
    if (!x.empty()) refuse_given(op, tensor, "the operator does not read it");
  }

  std::vector<T> slopes_;
};

FOVEA_NAMESPACE_END
