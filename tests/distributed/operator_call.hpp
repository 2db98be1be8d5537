// SPDX-License-Identifier: MIT
/// \file
/// Distributed calls of any operator that reads queries, keys and values: its tensors, and the
/// comparison with one process in layouts of every kind.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "attention/dominant_fill.hpp"
#include "distributed/drawn_trial.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"

namespace fovea_test {

/// Sizes of tensors that only some operators have.
struct OtherSizes {
  Index listed = 6;      // keys of a row that are given or chosen
  Index list_step = 20;  // their distance, on average half of it
  Index sketch_width = 3;
  Index dominants = 4;      // dominant indices of a key
  Index most_dominant = 0;  // their largest; 0: the tokens
  Index features = 21;      // rows of a projection
};

/// Ascending keys at most `step` apart, then -1. A ninth of the lists are empty.
inline Tensor<Index> ascending_lists(const AttentionShape& s, Index listed, Index step,
                                     std::uint64_t seed) {
  Tensor<Index> lists({s.batch, s.query_heads, s.queries, listed});
  for_each_index({s.batch, s.query_heads, s.queries, 1}, [&](Index b, Index h, Index n, Index) {
    Index key = static_cast<Index>(uniform(hash(seed, b, h, n, 0)) *
                                   static_cast<double>(s.keys + s.keys / 8));
    for (Index c = 0; c < listed; ++c) {
      lists(b, h, n, c) = key < s.keys ? key : -1;
      key += 1 + static_cast<Index>(hash(seed, b, h, n, c + 1) % static_cast<std::uint64_t>(step));
    }
  });
  return lists;
}

/// The shape of logits of a blend with some dimensions of "hd".
inline Shape blend_shape(const AttentionShape& s, const std::string& dims) {
  const auto extent = [&](char dim, Index n) {
    return dims.find(dim) == std::string::npos ? 1 : n;
  };
  return {1, extent('h', s.query_heads), 1, extent('d', s.value_width)};
}

/// The tensors of a call of `Op`: those that its inputs, saved state and gradients have members
/// for.
template <class Op, class T>
struct OperatorCall : ShardedCall<T> {
  using Inputs = fovea::InputsOf<Op, T>;
  using Saved = fovea::SavedOf<Op, T>;
  using Grads = fovea::GradsOf<Op, T>;
  using Numbers = ShardedTensor<fovea::Compute<T>>;

  /// \param extras optional tensors
  OperatorCall(const SquareSequence& s, const Fills& fills, const Extras& extras = {},
               const OtherSizes& sizes = {})
      : ShardedCall<T>(s, fills),
        bias(read("bias", !extras.bias.empty(), Held::logits, logits_shape(s.shape, extras.bias),
                  bias_fill(s.seed, extras))),
        mask(this->template add<bool>("mask", read_if(!extras.mask.empty()), Held::logits,
                                      logits_shape(s.shape, extras.mask), mask_fill(s.seed))),
        slopes(read("slopes", extras.alibi, Held::numbers, {1, 1, 1, s.shape.query_heads},
                    gaussian(s.seed + 700, 0.1))),
        sink(read("sink", extras.sink, Held::numbers, {1, 1, 1, s.shape.query_heads},
                  gaussian(s.seed + 800))),
        beta(read("beta", kHasBeta, Held::rows, s.of_keys(1), beta_fill(s.seed))),
        projection(read("projection", kHasProjection, Held::whole,
                        {1, 1, sizes.features, s.shape.width}, gaussian(s.seed + 1000))),
        near_logits(read("near logits", !extras.near_logits.empty(), Held::whole,
                         blend_shape(s.shape, extras.near_logits), gaussian(s.seed + 800))),
        far_logits(read("far logits", !extras.far_logits.empty(), Held::whole,
                        blend_shape(s.shape, extras.far_logits), gaussian(s.seed + 900))),
        indices(this->template add<Index>("indices", read_if(kHasLists), Held::rows,
                                          s.of_queries(sizes.listed))),
        sketch_q(read("sketch_q", kHasSketch, Held::rows,
                      {s.shape.batch, 1, s.shape.queries, sizes.sketch_width},
                      gaussian(s.seed + 10))),
        sketch_k(read("sketch_k", kHasSketch, Held::rows,
                      {s.shape.batch, 1, s.shape.keys, sizes.sketch_width}, gaussian(s.seed + 11))),
        dominant(read("dominant", kHasDominant, Held::rows, s.of_queries(sizes.dominants),
                      dominant_fill(s.seed + 3, static_cast<double>(sizes.most_dominant > 0
                                                                        ? sizes.most_dominant
                                                                        : s.shape.keys)))),
        near_out(kept("near_out", this->out.whole.shape())),
        near_lse(kept("near_lse", this->lse.whole.shape())),
        chosen(this->template add<Index>("chosen", kHasSketch ? Role::made : Role::none, Held::rows,
                                         s.of_queries(sizes.listed))),
        // A bias with one row for all queries has no distributed gradient.
        d_bias(gradient("d_bias", extras.bias.find('q') != std::string::npos, bias, Held::rows)),
        d_sink(gradient("d_sink", extras.sink, sink)),
        d_beta(gradient("d_beta", kHasBeta, beta)),
        d_projection(gradient("d_projection", kHasProjection, projection)),
        d_near_logits(gradient("d_near_logits", near_logits.role == Role::read, near_logits)),
        d_far_logits(gradient("d_far_logits", far_logits.role == Role::read, far_logits)),
        d_dominant(gradient("d_dominant", kHasDominant, dominant)) {
    if constexpr (!requires(Saved all) { all.lse; }) this->lse.role = Role::none;
    if (kHasLists) {
      indices.whole = ascending_lists(s.shape, sizes.listed, sizes.list_step, s.seed);
    }
    for (Numbers* x : {&d_bias, &d_sink, &d_projection, &d_near_logits, &d_far_logits}) {
      x->is_alike = true;
    }
  }
  /// With gaussian data.
  explicit OperatorCall(const SquareSequence& s, const Extras& extras = {},
                        const OtherSizes& sizes = {})
      : OperatorCall(s, gaussian_fills(s.seed), extras, sizes) {}

  Inputs inputs(Where where) const {
    AllInputs<T> in = ShardedCall<T>::inputs(where);
    in.bias = bias.in(where);
    in.mask = mask.in(where);
    in.alibi_slopes = slopes.numbers_in(where);
    in.sink = sink.numbers_in(where);
    in.beta = beta.in(where);
    in.projection = projection.in(where);
    in.near_logits = near_logits.in(where);
    in.far_logits = far_logits.in(where);
    in.indices = indices.in(where);
    in.sketch_q = sketch_q.in(where);
    in.sketch_k = sketch_k.in(where);
    in.dominant = dominant.in(where);
    return in;
  }
  Saved saved(Where where) const {
    return AllSaved<T>{.lse = this->lse.in(where),
                       .indices = chosen.in(where),
                       .near_out = near_out.in(where),
                       .near_lse = near_lse.in(where)};
  }
  Grads grads(Where where) const {
    AllGrads<T> all = ShardedCall<T>::grads(where);
    if constexpr (std::floating_point<T>) {
      all.bias = d_bias.in(where);
      all.sink = d_sink.numbers_in(where);
      all.beta = d_beta.in(where);
      all.projection = d_projection.in(where);
      all.near_logits = d_near_logits.in(where);
      all.far_logits = d_far_logits.in(where);
      all.dominant = d_dominant.in(where);
    }
    return all;
  }

  Numbers& bias;
  ShardedTensor<bool>& mask;
  Numbers &slopes, &sink, &beta, &projection, &near_logits, &far_logits;
  ShardedTensor<Index>& indices;
  Numbers &sketch_q, &sketch_k, &dominant, &near_out, &near_lse;
  ShardedTensor<Index>& chosen;
  Numbers &d_bias, &d_sink, &d_beta, &d_projection, &d_near_logits, &d_far_logits, &d_dominant;

 private:
  static constexpr bool kHasBeta = requires(Inputs in) { in.beta; };
  static constexpr bool kHasProjection = requires(Inputs in) { in.projection; };
  static constexpr bool kHasLists = requires(Inputs in) { in.indices; };
  static constexpr bool kHasSketch = requires(Inputs in) { in.sketch_q; };
  static constexpr bool kHasDominant = requires(Inputs in) { in.dominant; };
  static constexpr bool kHasNear = requires(Saved all) { all.near_out; };

  Numbers& read(const char* name, bool is_given, Held held, const Shape& shape, const Fill& fill) {
    return this->add(name, read_if(is_given), held, shape, fill);
  }
  Numbers& kept(const char* name, const Shape& shape) {
    return this->add(name, kHasNear ? Role::kept : Role::none, Held::rows, shape);
  }
  Numbers& gradient(const char* name, bool is_wanted, const Numbers& of) {
    return gradient(name, is_wanted, of, of.held);
  }
  Numbers& gradient(const char* name, bool is_wanted, const Numbers& of, Held held) {
    return this->add(name, gradient_if(is_wanted), held, of.whole.shape());
  }
};

/// Expects the bits of one process of both passes in layouts of every kind. Tensors of 16 bits have
/// no backward pass.
template <class Op, class T>
void expect_bits_of_one_process(const std::string& name, const Op& op, OperatorCall<Op, T>& call,
                                const AnyExecutor& executor = in_this_thread()) {
  compute_in_one_process(op, call);
  for (const RowLayout& layout : layouts_of(call.sequence.shape.queries, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    SCOPED_TRACE(name + ": " + call.sequence.text() + ", " + layout.text());
    call.shard(rows);
    forward_in(Where::ranks, op, call, rows, executor);
    call.expect_bits(Role::made, rows);
    call.expect_bits(Role::kept, rows);
    backward_in(Where::ranks, op, call, rows, executor);
    if (std::floating_point<T>) call.expect_bits(Role::gradient, rows);
  }
}
/// The same with gaussian data of these sizes.
template <class T, class Op>
void expect_bits_of_one_process(const std::string& name, const Op& op, const SquareSequence& s,
                                const Extras& extras = {},
                                const AnyExecutor& executor = in_this_thread()) {
  OperatorCall<Op, T> call(s, extras);
  expect_bits_of_one_process(name, op, call, executor);
}

/// The arguments of a rank's call, of which a test makes one wrong.
template <class Op, class T>
struct OwnArguments {
  /// Of a call that has this rank's parts.
  explicit OwnArguments(const OperatorCall<Op, T>& call)
      : inputs(call.inputs(Where::ranks)),
        out(call.out.in(Where::ranks)),
        saved(call.saved(Where::ranks)),
        d_out(call.d_out.in(Where::ranks)),
        d_lse(call.d_lse.in(Where::ranks)),
        grads(call.grads(Where::ranks)) {}

  fovea::InputsOf<Op, T> inputs;
  View<T> out;
  fovea::SavedOf<Op, T> saved;
  View<const T> d_out, d_lse;
  fovea::GradsOf<Op, T> grads;
};

/// A call over ranks with nearly equal numbers of rows, whose last rank passes something wrong.
template <class Op>
class RefusedCall {
 public:
  explicit RefusedCall(const Op& op, const SquareSequence& s = square(1, 2, 2, 40),
                       const Extras& extras = {})
      : call(s, extras),
        rows(all_ranks(), RowLayout::contiguous(s.shape.queries, all_ranks().size())),
        op_(op) {
    call.shard(rows);
  }

  OwnArguments<Op, float> arguments() const { return OwnArguments<Op, float>(call); }
  /// The message of the forward pass, and of the backward pass.
  std::string forward(const OwnArguments<Op, float>& a) const { return forward(op_, a); }
  template <class E = fovea::Serial>
  std::string forward(const Op& op, const OwnArguments<Op, float>& a, E&& executor = {}) const {
    return refusal(
        [&] { fovea::distributed::forward(op, a.inputs, a.out, a.saved, rows, executor); });
  }
  std::string backward(const OwnArguments<Op, float>& a) const { return backward(op_, a); }
  std::string backward(const Op& op, const OwnArguments<Op, float>& a) const {
    return refusal([&] {
      fovea::distributed::backward(op, a.inputs, View<const float>(a.out), a.saved,
                                   out_grads<Op, float>(a.d_out, a.d_lse), a.grads, rows);
    });
  }

  OperatorCall<Op, float> call;
  const Sharding rows;
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  /// What the message of an error of the last rank begins with.
  const std::string begin = "rank " + std::to_string(last) + ": " + Op::name() + ": ";

 private:
  Op op_;
};

/// Expects that both passes are refused where rank 0 has another operator than all others, and
/// accepted where all have the odd one.
/// \param own what the message says of the odd one
template <class Op>
void expect_refused_together(const Op& odd, const Op& of_first, const SquareSequence& s,
                             const std::string& own) {
  const RefusedCall<Op> call(of_first, s);
  const Op& op = all_ranks().rank() == 0 ? of_first : odd;
  const auto a = call.arguments();
  const auto expect_refused = [&](const std::string& text) {
    EXPECT_NE(text.find(own + ", where rank 0 calls " + Op::name()), std::string::npos) << text;
  };
  expect_refused(call.forward(op, a));
  call.call.expect_untouched();
  EXPECT_EQ(call.forward(odd, a), "accepted");
  expect_refused(call.backward(op, a));
  for (const auto& x : call.call.tensors) {
    if (x->role == Role::gradient) x->expect_untouched();
  }
}

}  // namespace fovea_test
