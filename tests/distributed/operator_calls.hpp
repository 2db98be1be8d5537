// SPDX-License-Identifier: MIT
/// \file
/// The tensors of calls over ranks of operators with rows that all ranks have, with heads on
/// different ranks, and of the Synthesizers.
#pragma once

#include <cmath>

#include "distributed/operator_call.hpp"
#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/linformer.hpp"
#include "fovea/attention/luna.hpp"
#include "fovea/attention/nystroem.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/attention/reformer.hpp"
#include "fovea/attention/sinkhorn.hpp"

namespace fovea_test {

template <class T>
struct NystroemCall : MemberCall<fovea::NystroemAttention, T> {
  NystroemCall(const SquareSequence& s, const Fills& fills, Index landmarks)
      : MemberCall<fovea::NystroemAttention, T>(s, fills),
        landmark_lse(this->add("landmark_lse", Role::kept, Held::whole,
                               {s.shape.batch, s.shape.query_heads, landmarks, 1})),
        landmark_values(
            this->add("landmark_values", Role::kept, Held::whole,
                      {s.shape.batch, s.shape.query_heads, landmarks, s.shape.value_width})) {}

  ShardedTensor<T>&landmark_lse, &landmark_values;
};

template <class T>
struct LinformerCall : MemberCall<fovea::LinformerAttention, T> {
  LinformerCall(const SquareSequence& s, const Fills& fills, Index projected, Index e_heads,
                Index f_heads)
      : MemberCall<fovea::LinformerAttention, T>(s, fills),
        e(add_columns("key_projection", Role::read, e_heads, projected, s.seed + 700)),
        f(add_columns("value_projection", Role::read, f_heads, projected, s.seed + 800)),
        keys(this->add("projected_keys", Role::kept, Held::whole,
                       {s.shape.batch, s.shape.key_heads, projected, s.shape.width})),
        values(this->add("projected_values", Role::kept, Held::whole,
                         {s.shape.batch, s.shape.key_heads, projected, s.shape.value_width})),
        d_e(add_columns("d_key_projection", Role::gradient, e_heads, projected, 0)),
        d_f(add_columns("d_value_projection", Role::gradient, f_heads, projected, 0)) {}

  ShardedTensor<T>&e, &f, &keys, &values, &d_e, &d_f;

 private:
  ShardedTensor<T>& add_columns(const char* name, Role role, Index heads, Index projected,
                                std::uint64_t seed) {
    const Index keys_of_all = this->sequence.shape.keys;
    const double size = 1 / std::sqrt(static_cast<double>(keys_of_all) + 1);
    return this->add(name, role, Held::columns, {1, heads, keys_of_all, projected},
                     gaussian(seed, size));
  }
};

template <class T>
struct LunaCall : MemberCall<fovea::LunaPack, T> {
  using Base = MemberCall<fovea::LunaPack, T>;

  LunaCall(const SquareSequence& s, const Fills& fills, bool is_pack, Index packed)
      : Base(
            s, fills,
            {s.shape.batch, s.shape.query_heads, is_pack ? packed : s.shape.queries, s.shape.width},
            is_pack ? Held::whole : Held::rows,
            {s.shape.batch, s.shape.key_heads, is_pack ? s.shape.keys : packed, s.shape.width},
            is_pack ? Held::rows : Held::whole),
        slopes(this->add("alibi_slopes", Role::read, Held::numbers, {1, 1, 1, s.shape.query_heads},
                         gaussian(s.seed + 700, 0.1))),
        sink(this->add("sink", Role::read, Held::numbers, {1, 1, 1, s.shape.query_heads},
                       gaussian(s.seed + 800))),
        d_sink(this->add("d_sink", Role::gradient, Held::numbers, {1, 1, 1, s.shape.query_heads})) {
    this->d_q.is_alike = is_pack;
    d_sink.is_alike = true;
  }

  ShardedTensor<T>&slopes, &sink, &d_sink;
};

template <class T>
struct ReformerCall : MemberCall<fovea::ReformerAttention, T> {
  ReformerCall(const SquareSequence& s, const Fills& fills, const fovea::ReformerOptions& options)
      : MemberCall<fovea::ReformerAttention, T>(s, fills),
        round_lse(this->add("round_lse", Role::kept, Held::rows, s.of_queries(options.rounds))),
        projection(this->add("projection", Role::read, Held::whole,
                             {1, options.rounds, s.shape.width, options.buckets / 2},
                             gaussian(s.seed + 700))) {
    this->q.name = "qk";
    this->d_q.name = "d_qk";
    this->k.role = this->d_k.role = Role::none;
  }

  ShardedTensor<T>&round_lse, &projection;
};

template <class T>
struct SinkhornCall : MemberCall<fovea::SinkhornAttention, T> {
  SinkhornCall(const SquareSequence& s, const Fills& fills, Index block)
      : MemberCall<fovea::SinkhornAttention, T>(s, fills),
        sorting(this->add(
            "sorting", Role::read, Held::blocks,
            {s.shape.batch, s.shape.key_heads, s.shape.keys / block, s.shape.keys / block},
            gaussian(s.seed + 700))),
        d_sorting(this->add("d_sorting", Role::gradient, Held::blocks, sorting.whole.shape())) {
    this->rows_of_block = block;
  }

  ShardedTensor<T>&sorting, &d_sorting;
};

/// The common tensors of the forms: values, but no queries and keys.
template <class Op, class T>
struct FormCall : MemberCall<Op, T> {
  FormCall(const SquareSequence& s, const Fills& fills, Index weights_of)
      : MemberCall<Op, T>(s, fills), weights(weights_of) {
    this->q.role = this->k.role = Role::none;
    this->d_q.role = this->d_k.role = Role::none;
  }

  ShardedTensor<T>& add_read(const char* name, Held held, const Shape& shape, const Fill& fill) {
    return this->add(name, Role::read, held, shape, fill);
  }
  ShardedTensor<T>& add_gradient(const char* name, const ShardedTensor<T>& of) {
    ShardedTensor<T>& made =
        this->add(name, gradient_if(of.role == Role::read), of.held, of.whole.shape());
    made.is_alike = of.held == Held::whole;
    return made;
  }

  Index weights;  // 1, or those of each sequence
};

template <class T>
struct RandomCall : FormCall<fovea::RandomSynthesizerAttention, T> {
  RandomCall(const SquareSequence& s, const Fills& fills, Index weights_of)
      : FormCall<fovea::RandomSynthesizerAttention, T>(s, fills, weights_of),
        r(this->add_read("r", Held::rows,
                         {weights_of, s.shape.query_heads, s.shape.queries, s.shape.keys},
                         bias_fill(s.seed, {.bias = "hqk"}))),
        d_r(this->add_gradient("d_r", r)) {}

  ShardedTensor<T>&r, &d_r;
};

template <class T>
struct FactorisedCall : FormCall<fovea::FactorisedSynthesizerAttention, T> {
  FactorisedCall(const SquareSequence& s, const Fills& fills, Index weights_of)
      : FormCall<fovea::FactorisedSynthesizerAttention, T>(s, fills, weights_of),
        r1(this->add_read("r1", Held::rows,
                          {weights_of, s.shape.query_heads, s.shape.queries, s.shape.width},
                          fills.q)),
        r2(this->add_read("r2", Held::rows,
                          {weights_of, s.shape.key_heads, s.shape.keys, s.shape.width}, fills.k)),
        d_r1(this->add_gradient("d_r1", r1)),
        d_r2(this->add_gradient("d_r2", r2)) {}

  ShardedTensor<T>&r1, &r2, &d_r1, &d_r2;
};

/// The sizes that the dense form has alone.
struct DenseSizes {
  Index hidden = 4;
  Index columns = 0;  // of W2
  Index token_heads = 1;
  bool has_b1 = true;
  bool has_b2 = true;
};

template <class T>
struct DenseCall : FormCall<fovea::DenseSynthesizerAttention, T> {
  DenseCall(const SquareSequence& s, const Fills& fills, Index weights_of, const DenseSizes& d)
      : FormCall<fovea::DenseSynthesizerAttention, T>(s, fills, weights_of),
        x(this->add_read("x", Held::rows,
                         {s.shape.batch, d.token_heads, s.shape.queries, s.shape.width}, fills.q)),
        w1(add_weights("w1", s.shape.query_heads, s.shape.width, d.hidden, s.seed + 700)),
        b1(add_weights("b1", s.shape.query_heads, 1, d.hidden, s.seed + 701)),
        w2(add_weights("w2", s.shape.key_heads, d.hidden, d.columns, s.seed + 702)),
        b2(add_weights("b2", s.shape.key_heads, 1, d.columns, s.seed + 703)),
        d_x(this->add_gradient("d_x", x)),
        d_w1(this->add_gradient("d_w1", w1)),
        d_b1(this->add_gradient("d_b1", b1)),
        d_w2(this->add_gradient("d_w2", w2)),
        d_b2(this->add_gradient("d_b2", b2)) {
    if (!d.has_b1) b1.role = d_b1.role = Role::none;
    if (!d.has_b2) b2.role = d_b2.role = Role::none;
  }

  ShardedTensor<T>&x, &w1, &b1, &w2, &b2;
  ShardedTensor<T>&d_x, &d_w1, &d_b1, &d_w2, &d_b2;

 private:
  ShardedTensor<T>& add_weights(const char* name, Index heads, Index rows, Index width,
                                std::uint64_t seed) {
    return this->add_read(name, Held::whole, {this->weights, heads, rows, width},
                          gaussian(seed, 0.5));
  }
};

}  // namespace fovea_test
