// SPDX-License-Identifier: MIT
/// \file
/// The decoder of every form of the Synthesizer: it keeps the softmax's keys and values.
#pragma once

#include <span>
#include <utility>

#include "fovea/attention/softmax/decoder.hpp"
#include "fovea/attention/synthesizer/softmax.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The inputs of a form as inputs of softmax attention, for forms whose weights have rows by
/// position, which are used in place. Such a form has static members: `attach(in, batch, first,
/// rows, to)` sets the queries and the bias of some rows in `to`, and `keys(from, batch, heads,
/// first, count)` returns some keys.
template <class Form, class T>
class SynthesizerLogits {
 public:
  /// Has no rows, as in a decoder.
  SynthesizerLogits() = default;
  /// \param in checked; its tensors must outlive this object
  SynthesizerLogits(const InputsOf<Form, T>& in, std::span<const Range> /*positions*/,
                    const ExecutorRef& /*executor*/, ExecutorRef::Memory /*memory*/) {
    const Index rows = in.v.rows();
    Form::attach(in, in.v.batch(), 0, rows, inputs_);
    inputs_.k = Form::template keys<T>(in, in.v.batch(), in.v.heads(), 0, rows);
    inputs_.v = in.v;
    inputs_.key_lengths = in.key_lengths;
  }

  /// The multiply-adds for queries and keys.
  static double products() { return 0; }
  /// The inputs of softmax attention.
  const SoftmaxInputs<T>& inputs() const { return inputs_; }
  /// Computes queries and keys: there is nothing to compute.
  static void compute(const ExecutorRef& /*executor*/) {}

  /// Bytes of scratch memory: none.
  static Index memory_bytes() { return 0; }
  /// The keys of `count` tokens of a decoder, from position `first` on.
  template <class From>
  static View<const T> keys(const DecoderShape& shape, const From& from, Index first, Index count) {
    return Form::template keys<T>(from, shape.batch, shape.key_heads, first, count);
  }
  /// Sets the queries to the last `rows` of `after` rows.
  static void attach(const DecoderShape& shape, const InputsOf<Form, T>& in, Index rows,
                     Index after, SoftmaxInputs<T>& to, const ExecutorRef& /*executor*/) {
    Form::attach(in, shape.batch, after - rows, rows, to);
    if (!to.bias.empty()) to.bias = part_of(to.bias, 3, 0, after);
  }

 private:
  SoftmaxInputs<T> inputs_;
};

/// The gradients of a form, from those of softmax attention. For a form whose weights have rows by
/// position, `as_softmax(grads)` returns the corresponding gradients; those of weights that all
/// sequences share are sums over the sequences.
template <class Form, class T>
class SynthesizerGradients {
 public:
  /// Allocates memory for the gradients of each sequence. \throws std::bad_alloc
  SynthesizerGradients(const InputsOf<Form, T>& in, const GradsOf<Form, T>& grads,
                       ExecutorRef::Memory memory)
      : wanted_(Form::as_softmax(grads)),
        of_queries_(wanted_.q, in.v.batch(), memory),
        of_keys_(wanted_.k, in.v.batch(), memory) {
    wanted_.q = of_queries_.of_sequences();
    wanted_.k = of_keys_.of_sequences();
  }

  /// The requested gradients of softmax attention.
  const SoftmaxGrads<T>& wanted() const { return wanted_; }
  /// Computes the form's gradients from them.
  void finish(SynthesizerLogits<Form, T>& /*logits*/, const ExecutorRef& executor) {
    of_queries_.finish(executor);
    of_keys_.finish(executor);
  }

 private:
  SoftmaxGrads<T> wanted_;
  BatchSum<T> of_queries_;
  BatchSum<T> of_keys_;
};

}  // namespace detail

/// What `op.decoder<T>(shape)` returns for a form `Op` of the Synthesizer: a growing sequence of
/// tokens, and the attention of its last positions, as many as `out` has rows. `step` computes, bit
/// for bit, what `op.forward` computes for the last rows of all tokens so far, if weights by
/// position (R, R1 and R2, W2 and b2) are the same: each call gets them completely, and a key's
/// part is read when its token is appended. It must not be called from several threads at once.
/// Errors are std::invalid_argument or std::bad_alloc, and leave the decoder and the outputs
/// unchanged. Memory: at most twice that of the tokens and the softmax's keys and values.
template <class Op, class T>
class SynthesizerDecoder
    : public AppendCalls<SynthesizerDecoder<Op, T>, typename Op::template Tokens<T>>,
      public StepCalls<SynthesizerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>> {
  using Softmax = detail::SynthesizedSoftmax<Op>;

 public:
  /// An empty decoder.
  /// \throws std::invalid_argument if the sizes do not allow a decoder; std::bad_alloc for
  /// shape.reserve
  SynthesizerDecoder(const Op& op, const DecoderShape& shape);

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return inner_.length(); }
  /// Bytes of memory for tokens and scratch.
  [[nodiscard]] Index memory_bytes() const;

  /// Drops the tokens from position `length` on.
  /// \throws std::invalid_argument if `length` is not in 0 to length()
  void rollback(Index length) { inner_.rollback(length); }
  /// Drops all tokens and keeps the memory.
  void clear() noexcept { inner_.clear(); }
  /// Allocates memory for that many tokens in total.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) { inner_.reserve(tokens); }

  /// An independent copy of the decoder, with memory for just its tokens.
  /// \throws std::bad_alloc
  [[nodiscard]] SynthesizerDecoder fork() const {
    return SynthesizerDecoder(op_, shape_, inner_.fork());
  }

 private:
  friend class AppendCalls<SynthesizerDecoder<Op, T>, typename Op::template Tokens<T>>;
  friend class StepCalls<SynthesizerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>>;

  /// Appends n tokens (AppendCalls), as many as `tokens.v` has rows.
  void append_tokens(const typename Op::template Tokens<T>& tokens);

  SynthesizerDecoder(const Op& op, const DecoderShape& shape, Decoder<Softmax, T> inner)
      : op_(op), shape_(shape), inner_(std::move(inner)) {}

  /// One step (StepCalls). If the inputs have v, these tokens are appended first.
  void run_step(const InputsOf<Op, T>& inputs, const View<T>& out, const SavedOf<Op, T>& saved,
                const ExecutorRef& executor);

  Op op_;
  DecoderShape shape_;
  Decoder<Softmax, T> inner_;
  detail::SynthesizerLogits<Op, T> logits_;  // with scratch memory only
};

FOVEA_NAMESPACE_END
