// SPDX-License-Identifier: MIT
/// \file
/// What the forms of the Synthesizer have in common as operators: options, checks, the number of
/// pairs, the decoder.
#pragma once

#include <optional>

#include "fovea/attention/synthesizer/decoder.hpp"
#include "fovea/attention/synthesizer/softmax.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// A form of the Synthesizer, `Form`, which derives from this class. It has `check_read(inputs,
/// sequence)`, what is to be checked of its inputs, beside what an operator of the library has.
template <class Form>
class SynthesizerForm : public ForwardCalls<Form>, public BackwardCalls<Form> {
 public:
  SynthesizerOptions options;  ///< checked at every call

  /// Holds these options.
  explicit SynthesizerForm(const SynthesizerOptions& chosen = {}) : options(chosen) {}

  /// Checks what `forward` takes.
  /// \throws std::invalid_argument, whose message names the operator, the tensor, the dimension,
  /// what was expected and what was given
  template <class T>
  void check(const InputsOf<Form, T>& inputs, const View<T>& out,
             const SavedOf<Form, T>& saved = {}) const;
  /// The same for a part of the rows. \param sequence the rows of the sequence, if these are a part
  /// of them: weights by position have as many columns
  template <class T>
  void check_tensors(const InputsOf<Form, T>& inputs, const View<T>& out,
                     const SavedOf<Form, T>& saved,
                     const std::optional<Index>& sequence = {}) const;

  /// Checks what `backward` takes. \throws std::invalid_argument as `check`
  template <class T>
  void check_backward(const InputsOf<Form, T>& inputs, const View<const T>& out,
                      const SavedOf<Form, T>& saved, const View<const T>& d_out,
                      const GradsOf<Form, T>& grads) const;
  /// The same for a part of the rows, as in check_tensors.
  template <class T>
  void check_backward_tensors(const InputsOf<Form, T>& inputs, const View<const T>& out,
                              const SavedOf<Form, T>& saved, const View<const T>& d_out,
                              const GradsOf<Form, T>& grads,
                              const std::optional<Index>& sequence = {}) const;

  /// The number of (query, key) pairs of one query head.
  [[nodiscard]] Index visible_pairs(const AttentionShape& shape, Index head = 0) const {
    return softmax().visible_pairs(shape, head);
  }

  /// A decoder, which keeps what the tokens so far have as keys, and their values. Its steps are
  /// given all weights by position, of at least as many positions as there are tokens then.
  /// \throws as the constructor of Decoder does
  template <class T>
  [[nodiscard]] SynthesizerDecoder<Form, T> decoder(const DecoderShape& shape) const {
    return SynthesizerDecoder<Form, T>(static_cast<const Form&>(*this), shape);
  }

  /// The softmax of the form's logits.
  SynthesizedSoftmax<Form> softmax() const { return SynthesizedSoftmax<Form>(options); }

 protected:
  ~SynthesizerForm() = default;
};

}  // namespace detail

FOVEA_NAMESPACE_END
