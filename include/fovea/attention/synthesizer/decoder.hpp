// SPDX-License-Identifier: MIT
/// \file
/// The decoder of every form of the Synthesizer: it keeps what the softmax has as keys, and the
/// values.
#pragma once

#include <string>
#include <utility>

#include "fovea/attention/softmax/decoder.hpp"
#include "fovea/attention/synthesizer/softmax.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Extents [first, first + count) of dimension d of a view.
template <class U>
View<U> part_of(const View<U>& x, std::size_t d, Index first, Index count) {
  Shape shape = x.shape();
  shape[d] = count;
  const bool is_empty = x.size() == 0 || count == 0;
  return {is_empty ? x.data() : x.data() + first * x.strides()[d], shape, x.strides()};
}

/// A tensor that a decoder reads whole must go to the end of the tokens, or beyond.
/// \throws std::invalid_argument
template <class U>
void check_reaches(const char* op, const char* tensor, const View<U>& x, std::size_t d,
                   Index after) {
  if (x.shape()[d] >= after) return;
  refuse_extent(op, tensor, x.shape(), d,
                "at least " + std::to_string(after) + ", the tokens in the decoder");
}

}  // namespace detail

/// What `op.decoder<T>(shape)` returns for a form `Op` of the Synthesizer: a growing sequence of
/// tokens, and the attention of its last positions, whose rows are as many as those of `out`.
/// `step` gives, bit for bit, what `op.forward` gives for the last rows of all tokens so far, if
/// weights by position (R, R1 and R2, W2 and b2) are the same: each call is given them whole, and
/// what belongs to a key is read with the token that brings it. It must not be called from several
/// threads at once. Errors are std::invalid_argument or std::bad_alloc, and leave the decoder and
/// the outputs as they were.
/// Memory: at most twice the tokens, values and what the softmax has as keys.
template <class Op, class T>
class SynthesizerDecoder
    : public AppendCalls<SynthesizerDecoder<Op, T>, typename Op::template Tokens<T>>,
      public StepCalls<SynthesizerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>> {
  using Softmax = detail::SynthesizedSoftmax<Op>;
  using Form = typename Op::template DecoderForm<T>;

 public:
  /// An empty decoder.
  /// \throws std::invalid_argument if the sizes do not allow a decoder; std::bad_alloc for
  /// shape.reserve
  SynthesizerDecoder(const Op& op, const DecoderShape& shape)
      : op_(op), shape_(shape), inner_(Softmax(op.options), Form::softmax_shape(shape)) {}

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return inner_.length(); }
  /// Bytes of memory for tokens and scratch.
  [[nodiscard]] Index memory_bytes() const { return inner_.memory_bytes() + form_.memory_bytes(); }

  /// Forgets the tokens from position `length` on.
  /// \throws std::invalid_argument if `length` is not one of 0 to length()
  void rollback(Index length) { inner_.rollback(length); }
  /// Forgets all tokens and keeps the memory.
  void clear() noexcept { inner_.clear(); }
  /// Takes memory for that many tokens in all.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) { inner_.reserve(tokens); }

  /// A copy of the decoder that is independent of it, with memory for just its tokens.
  /// \throws std::bad_alloc
  [[nodiscard]] SynthesizerDecoder fork() const {
    return SynthesizerDecoder(op_, shape_, inner_.fork());
  }

 private:
  friend class AppendCalls<SynthesizerDecoder<Op, T>, typename Op::template Tokens<T>>;
  friend class StepCalls<SynthesizerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>>;

  /// Appends n tokens (AppendCalls), as many as `tokens.v` has rows.
  void append_tokens(const typename Op::template Tokens<T>& tokens) {
    const Index count = tokens.v.rows();
    Form::check_keys(shape_, tokens, length() + count);
    inner_.append(form_.keys(shape_, tokens, length(), count), tokens.v);
  }

  SynthesizerDecoder(const Op& op, const DecoderShape& shape, Decoder<Softmax, T> inner)
      : op_(op), shape_(shape), inner_(std::move(inner)) {}

  /// One step (StepCalls). If the inputs have v, these tokens are appended first.
  void run_step(const InputsOf<Op, T>& inputs, const View<T>& out, const SavedOf<Op, T>& saved,
                const ExecutorRef& executor) {
    const Index count = inputs.v.is_none() ? 0 : inputs.v.rows();
    const Index after = length() + count;
    const Index rows = out.rows();
    if (!inputs.key_lengths.empty()) {
      refuse_given(Op::name(), "key_lengths", "a decoder keeps its own length");
    }
    if (rows > after) {
      refuse(Op::name(), "out has " + std::to_string(rows) + " rows",
             "expected at most " + std::to_string(after) + ", the tokens in the decoder");
    }
    Form::check_keys(shape_, inputs, after);
    Form::check_rows(shape_, inputs, rows, after);
    inputs.for_each_tensor([&](const char* name, const auto& x) {
      detail::check_apart(Op::name(), "out", out, name, x);
      detail::check_apart(Op::name(), "lse", saved.lse, name, x);
    });
    SoftmaxInputs<T> made;
    form_.attach(shape_, inputs, rows, after, made, executor);
    if (count > 0) {
      made.k = form_.keys(shape_, inputs, length(), count);
      made.v = inputs.v;
    }
    inner_.step(made, out, saved, executor);
  }

  Op op_;
  DecoderShape shape_;
  Decoder<Softmax, T> inner_;
  Form form_;  // what it keeps is scratch
};

FOVEA_NAMESPACE_END
