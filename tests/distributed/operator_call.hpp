// SPDX-License-Identifier: MIT
/// \file
/// The tensors of distributed calls of any operator that reads queries, keys and values.
#pragma once

#include <string>

#include "attention/dominant_fill.hpp"
#include "distributed/drawn_trial.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"

namespace fovea_test {

using fovea::detail::made_of_tensors;

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
    const Index most = s.keys + s.keys / 8;
    Index key = static_cast<Index>(uniform(hash(seed, b, h, n, 0)) * static_cast<double>(most));
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

/// A call whose tensors have the names of the operator's inputs and saved tensors, and those of
/// gradients with "d_" before them.
template <class Op, class T>
struct MemberCall : ShardedCall<T> {
  using ShardedCall<T>::ShardedCall;

  fovea::InputsOf<Op, T> inputs(Where where) const {
    auto in = named_like<fovea::InputsOf<Op, T>>("", where);
    in.key_lengths = this->sequence.lengths;
    if constexpr (requires { in.first_positions; }) {
      in.first_positions = this->sequence.first_positions;
    }
    return in;
  }
  fovea::SavedOf<Op, T> saved(Where where) const {
    return named_like<fovea::SavedOf<Op, T>>("", where);
  }
  fovea::GradsOf<Op, T> grads(Where where) const {
    return named_like<fovea::GradsOf<Op, T>>("d_", where);
  }

 private:
  template <class Members>
  Members named_like(const std::string& prefix, Where where) const {
    return made_of_tensors<Members>([&]<class Member>(const char* name, Member& member) {
      const AnyShardedTensor* const any = this->named(prefix + name);
      if constexpr (fovea::Viewable<Member>) {
        const auto* x = dynamic_cast<const ShardedTensor<fovea::Scalar<Member>>*>(any);
        if (x != nullptr) member = x->in(where);
      } else {
        const auto* x = dynamic_cast<const ShardedTensor<typename Member::value_type>*>(any);
        if (x != nullptr) member = x->numbers_in(where);
      }
    });
  }
};

/// The tensors of a call of `Op`: those that its inputs, saved state and gradients have members
/// for.
template <class Op, class T>
struct OperatorCall : MemberCall<Op, T> {
  using Inputs = fovea::InputsOf<Op, T>;
  using Saved = fovea::SavedOf<Op, T>;
  using Numbers = ShardedTensor<fovea::Compute<T>>;

  /// \param extras optional tensors
  OperatorCall(const SquareSequence& s, const Fills& fills, const Extras& extras = {},
               const OtherSizes& sizes = {})
      : MemberCall<Op, T>(s, fills),
        bias(read("bias", !extras.bias.empty(), Held::logits, logits_shape(s.shape, extras.bias),
                  bias_fill(s.seed, extras))),
        mask(this->template add<bool>("mask", read_if(!extras.mask.empty()), Held::logits,
                                      logits_shape(s.shape, extras.mask), mask_fill(s.seed))),
        slopes(read("alibi_slopes", extras.alibi, Held::numbers, {1, 1, 1, s.shape.query_heads},
                    gaussian(s.seed + 700, 0.1))),
        sink(read("sink", extras.sink, Held::numbers, {1, 1, 1, s.shape.query_heads},
                  gaussian(s.seed + 800))),
        beta(read("beta", kHasBeta, Held::rows, s.of_keys(1), beta_fill(s.seed))),
        projection(read("projection", kHasProjection, Held::whole,
                        {1, 1, sizes.features, s.shape.width}, gaussian(s.seed + 1000))),
        near_logits(read("near_logits", !extras.near_logits.empty(), Held::whole,
                         blend_shape(s.shape, extras.near_logits), gaussian(s.seed + 800))),
        far_logits(read("far_logits", !extras.far_logits.empty(), Held::whole,
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
        chosen(this->template add<Index>("indices", kHasSketch ? Role::made : Role::none,
                                         Held::rows, s.of_queries(sizes.listed))),
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

/// Adds projections of global rows to a call, and their gradients.
template <class T>
void add_global_rows(OperatorCall<fovea::LongformerAttention, T>& call) {
  auto add = [&, seed = call.sequence.seed + 1000](const char* name, const char* gradient,
                                                   const Shape& shape) mutable {
    call.template add<T>(name, Role::read, Held::rows, shape, gaussian(seed++));
    call.template add<T>(gradient, Role::gradient, Held::rows, shape);
  };
  add("global_q", "d_global_q", call.q.whole.shape());
  add("global_k", "d_global_k", call.k.whole.shape());
  add("global_v", "d_global_v", call.v.whole.shape());
}

}  // namespace fovea_test
