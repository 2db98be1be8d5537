// SPDX-License-Identifier: MIT
/// \file
/// Makes the kernel arguments of one head from a call's checked tensors and options.
#pragma once

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/softmax/options.hpp"
#include "fovea/kernels/softmax/block.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernel arguments of one head, for tensors of T.
template <class T>
using HeadArgs = SoftmaxBlockArgs<Compute<T>, kStorage<T>>;

/// One call of a softmax operator: its checked inputs and options.
template <class T>
class SoftmaxCall {
 public:
  /// \param inputs checked; what they view must outlive this object
  /// \param options checked
  /// \param modifier a user's function of logits; its object must outlive this one
  SoftmaxCall(const SoftmaxInputs<T>& inputs, const SoftmaxOptions& options,
              const ScoreModifierArgs<Compute<T>>& modifier = {})
      : inputs_(inputs),
        options_(options),
        modifier_(modifier),
        sequences_(inputs, options.alignment) {}

  /// The inputs of the call.
  const SoftmaxInputs<T>& inputs() const { return inputs_; }
  /// The sequences of the call.
  const Sequences<T>& sequences() const { return sequences_; }
  /// The sizes of the call.
  AttentionShape shape() const { return shape_of(inputs_); }

  /// The scale of the logits: the option, or 1/sqrt(D).
  Compute<T> scale() const {
    return detail::logit_scale<Compute<T>>(options_.scale, inputs_.q.width());
  }

  /// The key head that query head h reads.
  Index key_head(Index h) const {
    return h / detail::group_size(inputs_.q.heads(), inputs_.k.heads());
  }

  /// The operations on the logits and weights of one head of a sequence.
  ScoreMap<Compute<T>> score_map(const Sequence& s, Index h) const {
    ScoreMap<Compute<T>> map;
    const auto head = static_cast<std::size_t>(h);
    if (options_.soft_cap) map.soft_cap = static_cast<Compute<T>>(*options_.soft_cap);
    map.modifier = modifier_;
    if (!inputs_.alibi_slopes.empty()) {
      map.alibi_slope = inputs_.alibi_slopes[head];
      map.exponent_bias = kAlibiLift;
    }
    map.bias = detail::head_logits(inputs_.bias, s.batch, h, s.first_query, s.first_key);
    map.mask = detail::head_logits(inputs_.mask, s.batch, h, s.first_query, s.first_key);
    map.dropout = {options_.dropout.probability, options_.dropout.seed, s.index, h};
    return map;
  }

  /// The sink of a query head; null if there is none.
  const Compute<T>* sink(Index h) const {
    return inputs_.sink.empty() ? nullptr : &inputs_.sink[static_cast<std::size_t>(h)];
  }

  /// The kernel arguments of one head, except the block and the scratch.
  HeadArgs<T> args(const Sequence& s, Index h, const View<T>& out,
                   const SoftmaxSaved<T>& saved) const {
    HeadArgs<T> args;
    args.q = detail::head_stored(inputs_.q, s.batch, h, s.first_query);
    args.k = detail::head_stored(inputs_.k, s.batch, key_head(h), s.first_key);
    args.v = detail::head_stored(inputs_.v, s.batch, key_head(h), s.first_key);
    args.out = detail::head_output(out, s.batch, h, s.first_query);
    if (!saved.lse.empty()) {
      args.lse = detail::head_matrix(saved.lse, s.batch, h, s.first_query);
    }
    args.width = inputs_.q.width();
    args.value_width = inputs_.v.width();
    args.scale = scale();
    args.sink = sink(h);
    args.map = score_map(s, h);
    args.first_position = s.first_position;
    args.key_end = s.key_end;
    return args;
  }

 private:
  SoftmaxInputs<T> inputs_;
  SoftmaxOptions options_;
  ScoreModifierArgs<Compute<T>> modifier_;
  Sequences<T> sequences_;
};

FOVEA_NAMESPACE_END
