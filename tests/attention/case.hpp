// SPDX-License-Identifier: MIT
/// \file
/// One operator with its options and the optional inputs that it is tested with.
#pragma once

#include <functional>
#include <string>

#include "attention/any_decoder.hpp"
#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "support/executors.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test {

using bench::AllGrads;
using bench::AllInputs;
using bench::AllSaved;
using fovea::AttentionShape;

/// The optional inputs that a case adds to every problem. A tensor is named by the dimensions that
/// it has, of "bhqk": it is broadcast along the others; "1" has none, "" is no tensor.
struct Extras {
  std::string bias = {};  // with k: a sixth of its elements are -inf
  std::string mask = {};  // a quarter of its elements are false
  bool alibi = false;
  bool sink = false;
  bool beta = false;             // in (0, 1)
  std::string near_logits = {};  // of "hd"
  std::string far_logits = {};
  Index features = 0;  // rows of a normal projection [1, 1, R, D]; 0: none
};

/// One operator with its options, as the properties use it.
template <class T>
struct Case {
  std::string name;
  Extras extras;
  fovea::SoftmaxOptions options;  // of others what they share with it
  std::function<void(const AllInputs<T>&, const View<T>&, const AllSaved<T>&, AnyExecutor*)>
      forward;
  /// inputs, out, saved, d_out, grads
  std::function<void(const AllInputs<T>&, const View<const T>&, const AllSaved<T>&,
                     const View<const T>&, const AllGrads<T>&, AnyExecutor*)>
      backward;
  /// inputs, out, saved, d_out and d_lse, grads; or none
  std::function<void(const AllInputs<T>&, const View<const T>&, const AllSaved<T>&,
                     const fovea::SoftmaxOutGrads<T>&, const AllGrads<T>&)>
      backward_through_lse;
  /// The matrices of attention_scores; or none
  std::function<void(const AllInputs<T>&, const fovea::AttentionScores<T>&, AnyExecutor&)> scores;
  std::function<AnyDecoder<T>(const fovea::DecoderShape&)> decoder;  // or none
  bool has_decoder = true;                                           // or refuses to make one
  std::function<Index(const AttentionShape&, Index workers)> workspace_bytes;
  std::function<Index(const AttentionShape&, Index workers)> backward_workspace_bytes;
  std::function<Index(const AttentionShape&)> attended_pairs;
  ReferenceMask visible;
  std::function<Expected<T>(const AllInputs<T>&)> oracle;
  std::function<ExpectedGrads<T>(const AllInputs<T>&, const View<const T>& d_out)> grad_oracle;

  /// Whether it is softmax attention, all of it: it gives lse, and its weights sum to 1.
  bool is_softmax = true;
  /// Whether these weights are multiplied by something afterwards, so that they do not.
  bool scales_weights = false;
  /// Whether weights may be 0 or negative, so that rows may have no denominator to speak of.
  bool signed_weights = false;
  /// Whether the bias is the logits, and not added to products of queries and keys.
  bool has_given_logits = false;
  /// Whether heads see different keys.
  bool by_head = false;
  /// Whether a row's keys are in several runs, whose order depends on its position.
  bool in_runs = false;
  /// Whether a row's keys have different kinds of weights, such as those of a band.
  bool has_band = false;
  /// Whether the pattern has passes, between which something of each row waits.
  bool staged = false;
  /// Whether its calls make the lists of keys that it is given: their memory is no scratch of it.
  bool makes_lists = false;
  /// Whether queries and keys are the same tokens: as many, and beyond a key length there are
  /// neither. Problems get as many of both as the larger number asks for.
  bool is_square = false;
  /// Whether its workspace_bytes for backward exceeds what the suite's calls allocate: it includes
  /// sums over sequences, but each sequence has its own weights here.
  bool sums_sequences = false;
  /// The number of keys that its options require: problems have at least that many.
  Index least_keys = 0;
  /// Whether its calls take packed sequences.
  bool packs = true;
  /// Whether the keys of a row are drawn: by the place of its sequence and head, and by the length.
  bool draws = false;

  /// Takes the oracles of softmax attention over the visible pairs.
  void take_softmax_oracles(const fovea::SoftmaxOptions& of) {
    const auto op = [of, mask = visible](const AllInputs<T>& in) {
      return OracleOperator<T>::of(of, mask, in.q.width());
    };
    oracle = [op](const AllInputs<T>& in) { return softmax_oracle(in, op(in)); };
    grad_oracle = [op](const AllInputs<T>& in, const View<const T>& d_out) {
      return softmax_grad_oracle(in, op(in), d_out);
    };
  }

  /// Whether the pattern shows key j to a row.
  bool sees(const AttentionShape& s, Index b, Index h, Index row, Index j) const {
    return visible(Pair{b, h, row, j, s.queries, s.keys});
  }
  bool drops() const { return draws || options.dropout.probability > 0; }
  /// Whether a row depends on its position beyond the keys that it sees.
  bool by_position() const { return drops() || extras.alibi || in_runs || has_band; }
  Index position(const AttentionShape& s, Index row) const {
    return options.alignment == fovea::CausalAlignment::top_left ? row : row + s.keys - s.queries;
  }
  /// Whether it has tensors of Nq x Nk elements.
  bool has_pairs() const {
    const auto is_large = [](const std::string& dims) {
      return dims.find('q') != std::string::npos && dims.find('k') != std::string::npos;
    };
    return is_large(extras.bias) || is_large(extras.mask);
  }
  /// Whether it is softmax(scale q k) v over its pattern and nothing else.
  bool plain() const {
    return is_softmax && !scales_weights && extras.bias.empty() && extras.mask.empty() &&
           !extras.alibi && !extras.sink && !options.soft_cap && !drops();
  }
};

/// The width of sketches, the dominant indices of a key, and random features, in all cases.
inline constexpr Index kBeyond = 4;

/// A case without its oracles. `Op` satisfies fovea::DifferentiableAttention.
/// \param beyond d, M or R, if its shapes have one of them
template <class T, class Op>
Case<T> make_case(const std::string& name, const Op& op, const ReferenceMask& reference_mask,
                  Index beyond = kBeyond) {
  static_assert(fovea::DifferentiableAttention<Op, T>);
  Case<T> made;
  made.name = name;
  made.is_softmax = requires { op.softmax_options(); };
  if constexpr (requires { op.softmax_options(); }) {
    made.options = op.softmax_options();
  } else if constexpr (requires { op.options.alignment; }) {
    made.options.alignment = op.options.alignment;
  }
  made.has_decoder = made.options.alignment != fovea::CausalAlignment::top_left;
  made.forward = [op](const AllInputs<T>& in, const View<T>& out, const AllSaved<T>& saved,
                      AnyExecutor* executor) {
    if (executor == nullptr) {
      op.forward(in, out, saved);
    } else {
      op.forward(in, out, saved, *executor);
    }
  };
  made.backward = [op](const AllInputs<T>& in, const View<const T>& out, const AllSaved<T>& saved,
                       const View<const T>& d_out, const AllGrads<T>& grads,
                       AnyExecutor* executor) {
    if (executor == nullptr) {
      op.backward(in, out, saved, d_out, grads);
    } else {
      op.backward(in, out, saved, d_out, grads, *executor);
    }
  };
  if constexpr (requires { typename Op::template OutGrads<T>; }) {
    made.backward_through_lse =
        [op](const AllInputs<T>& in, const View<const T>& out, const AllSaved<T>& saved,
             const fovea::SoftmaxOutGrads<T>& from,
             const AllGrads<T>& grads) { op.backward(in, out, saved, from, grads); };
  }
  if constexpr (requires(const AllInputs<T>& in) { fovea::attention_scores<T>(op, in, {}); }) {
    made.scores = [op](const AllInputs<T>& in, const fovea::AttentionScores<T>& to,
                       AnyExecutor& executor) { fovea::attention_scores<T>(op, in, to, executor); };
  }
  if constexpr (fovea::IncrementalAttention<Op, T>) {
    made.decoder = [op, beyond](const fovea::DecoderShape& shape) {
      return any_decoder<Op, T>(
          op.template decoder<T>(bench::decoder_shape_for<Op>(shape, beyond)));
    };
  } else {
    made.has_decoder = false;
  }
  const auto shape_of = [beyond](const AttentionShape& shape) {
    constexpr bool has_lists = requires(typename Op::Shape s) { s.keys_per_row; };
    return bench::shape_for<Op>(shape, has_lists ? shape.keys : beyond);
  };
  made.workspace_bytes = [=](const AttentionShape& shape, Index workers) {
    return op.template workspace_bytes<T>(shape_of(shape), workers);
  };
  made.backward_workspace_bytes = [=](const AttentionShape& shape, Index workers) {
    return op.template backward_workspace_bytes<T>(shape_of(shape), workers);
  };
  made.attended_pairs = [=](const AttentionShape& shape) {
    return op.attended_pairs(shape_of(shape), 0);
  };
  made.visible = reference_mask;
  return made;
}

/// An operator that is softmax attention over the pairs that the reference mask shows.
template <class T, class Op>
Case<T> softmax_case(const std::string& name, const Op& op, const ReferenceMask& reference_mask,
                     const Extras& extras = {}) {
  Case<T> made = make_case<T>(name, op, reference_mask);
  made.extras = extras;
  made.take_softmax_oracles(op.softmax_options());
  return made;
}

}  // namespace fovea_test
