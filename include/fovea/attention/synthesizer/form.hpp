// SPDX-License-Identifier: MIT
/// \file
/// The common base of the Synthesizer's forms: options, checks, both passes, the number of pairs,
/// the decoder.
#pragma once

#include <optional>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/synthesizer/decoder.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The base class of a form of the Synthesizer, `Form`: full attention over the queries, keys and
/// bias that SynthesizerLogits computes from its inputs. Besides the types of an operator, a form
/// has static members `check_read(inputs, sequence)`, which checks its inputs; `check_keys(shape,
/// from, after)` and `check_rows(shape, inputs, rows, after)`, which check new tokens and the last
/// rows of a decoder; `softmax_shape`, if it differs from that below; and what SynthesizerLogits
/// and SynthesizerGradients call. \tparam S the sizes of a call
template <class Form, class S = AttentionShape>
class SynthesizerForm : public ForwardCalls<Form>, public BackwardCalls<Form> {
 public:
  SynthesizerOptions options;  ///< checked at every call

  /// Holds these options.
  explicit SynthesizerForm(const SynthesizerOptions& chosen = {}) : options(chosen) {}

  /// What the forward pass saves: lse, if it is given a tensor.
  template <class T>
  using Saved = SoftmaxSaved<T>;
  /// The sizes of a call.
  using Shape = S;
  /// The sizes of a decoder, whose width is that of R1 and R2, or M.
  using DecoderShape = fovea::DecoderShape;

  /// Checks the arguments of `forward`.
  /// \param sequence the number of rows of the whole sequence if the inputs have a part of it:
  /// weights by position have as many columns
  /// \throws std::invalid_argument, whose message names the operator, the tensor, the dimension,
  /// what was expected and what was given
  template <class T>
  void check(const InputsOf<Form, T>& inputs, const View<T>& out, const SoftmaxSaved<T>& saved = {},
             const std::optional<Index>& sequence = {}) const;
  /// Checks the arguments of `backward`. \throws std::invalid_argument as `check`
  template <class T>
  void check_backward(const InputsOf<Form, T>& inputs, const View<const T>& out,
                      const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                      const GradsOf<Form, T>& grads,
                      const std::optional<Index>& sequence = {}) const;

  /// The number of (query, key) pairs of one query head.
  [[nodiscard]] Index attended_pairs(const AttentionShape& shape, Index head = 0) const {
    return softmax().attended_pairs(shape, head);
  }

  /// A decoder, which keeps the keys and values of the tokens so far. Its steps get all weights by
  /// position, for at least as many positions as there are tokens.
  /// \throws as the constructor of Decoder does
  template <class T>
  [[nodiscard]] SynthesizerDecoder<Form, T> decoder(const DecoderShape& shape) const {
    return SynthesizerDecoder<Form, T>(static_cast<const Form&>(*this), shape);
  }

  /// The softmax of the form's logits.
  SynthesizedSoftmax<Form> softmax() const { return SynthesizedSoftmax<Form>(options); }

  /// The sizes of that softmax's decoder. \param shape of the form's
  static DecoderShape softmax_shape(const DecoderShape& shape) { return shape; }

 protected:
  ~SynthesizerForm() = default;

 private:
  friend class ForwardCalls<Form>;
  friend class BackwardCalls<Form>;

  template <class T>
  void run(const InputsOf<Form, T>& inputs, const View<T>& out, const SoftmaxSaved<T>& saved,
           const ExecutorRef& executor) const;

  /// Writes the gradients: the exact derivatives of `forward`, and 0 for what is not visible.
  template <class T>
  void run_backward(const InputsOf<Form, T>& inputs, const View<const T>& out,
                    const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                    const GradsOf<Form, T>& grads, const ExecutorRef& executor) const;
};

}  // namespace detail

FOVEA_NAMESPACE_END
