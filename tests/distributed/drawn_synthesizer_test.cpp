// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The forms of the Synthesizer over ranks, with drawn options, sizes, data and places: the bits
/// are those of one process.
#include <gtest/gtest.h>

#include "distributed/drawn_trial.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"

namespace fovea_test::distributed_drawn_synthesizer {

using fovea::kReductionBlock;

/// The common tensors of the forms: values, but no queries and keys.
template <class T>
struct FormCall : ShardedCall<T> {
  FormCall(const DrawnSequence& s, const Fills& fills, Index weights_of)
      : ShardedCall<T>(s, fills), weights(weights_of) {
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
struct RandomCall : FormCall<T> {
  RandomCall(const DrawnSequence& s, const Fills& fills, Index weights_of)
      : FormCall<T>(s, fills, weights_of),
        r(this->add_read("r", Held::rows,
                         {weights_of, s.shape.query_heads, s.shape.queries, s.shape.keys},
                         bias_fill(s.seed, {.bias = "hqk"}))),
        d_r(this->add_gradient("d_r", r)) {}

  fovea::RandomSynthesizerInputs<T> inputs(Where where) const {
    return {r.in(where), this->v.in(where), this->sequence.lengths};
  }
  fovea::RandomSynthesizerGrads<T> grads(Where where) const {
    return {d_r.in(where), this->d_v.in(where)};
  }

  ShardedTensor<T>&r, &d_r;
};

template <class T>
struct FactorisedCall : FormCall<T> {
  FactorisedCall(const DrawnSequence& s, const Fills& fills, Index weights_of)
      : FormCall<T>(s, fills, weights_of),
        r1(this->add_read("r1", Held::rows,
                          {weights_of, s.shape.query_heads, s.shape.queries, s.shape.width},
                          fills.q)),
        r2(this->add_read("r2", Held::rows,
                          {weights_of, s.shape.key_heads, s.shape.keys, s.shape.width}, fills.k)),
        d_r1(this->add_gradient("d_r1", r1)),
        d_r2(this->add_gradient("d_r2", r2)) {}

  fovea::FactorisedSynthesizerInputs<T> inputs(Where where) const {
    return {r1.in(where), r2.in(where), this->v.in(where), this->sequence.lengths};
  }
  fovea::FactorisedSynthesizerGrads<T> grads(Where where) const {
    return {d_r1.in(where), d_r2.in(where), this->d_v.in(where)};
  }

  ShardedTensor<T>&r1, &r2, &d_r1, &d_r2;
};

/// The sizes that the dense form has alone.
struct DenseSizes {
  Index hidden;
  Index columns;
  Index token_heads;
  bool has_b1;
  bool has_b2;

  DenseSizes(Bytes& bytes, const AttentionShape& s)
      : hidden(bytes.once_in(8) ? 0 : bytes(1, 40)),
        columns(s.keys + (bytes.once_in(2) ? 0 : bytes(1, 30))),
        token_heads(bytes.once_in(2) ? 1 : s.query_heads),
        has_b1(bytes.once_in(2)),
        has_b2(bytes.once_in(2)) {}
};

template <class T>
struct DenseCall : FormCall<T> {
  DenseCall(const DrawnSequence& s, const Fills& fills, Index weights_of, const DenseSizes& d)
      : FormCall<T>(s, fills, weights_of),
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

  fovea::DenseSynthesizerInputs<T> inputs(Where where) const {
    return {x.in(where),  w1.in(where),      b1.in(where),          w2.in(where),
            b2.in(where), this->v.in(where), this->sequence.lengths};
  }
  fovea::DenseSynthesizerGrads<T> grads(Where where) const {
    return {d_x.in(where),  d_w1.in(where), d_b1.in(where),
            d_w2.in(where), d_b2.in(where), this->d_v.in(where)};
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

template <class T>
void try_any(Bytes& bytes) {
  const Index form = bytes(0, 2);
  DrawnSequence sequence(bytes, 1, form == 0 ? 1500 : 2 * fovea::kKeySegment + 200);
  if (form == 0 && sequence.shape.queries > 200) {  // whose logits are many
    sequence.shape.key_heads = 1;
    sequence.shape.query_heads = std::min<Index>(sequence.shape.query_heads, 2);
  }
  const fovea::SynthesizerOptions options{.causal = bytes.once_in(2)};
  const Index weights = bytes.once_in(2) ? 1 : sequence.shape.batch;
  const Fills fills = drawn_fills(bytes, sequence.seed);
  const Index rows = sequence.shape.queries;
  if (form == 2) {
    const DenseSizes sizes(bytes, sequence.shape);
    DenseCall<T> call(sequence, fills, weights, sizes);
    // Sums over tokens are cut at chains.
    const bool sums_tokens = bytes.once_in(2);
    if (!sums_tokens) call.d_w1.role = call.d_b1.role = Role::none;
    const RowLayout layout = drawn_row_layout(bytes, rows, sums_tokens ? kReductionBlock : 1);
    try_sharded(fovea::DenseSynthesizerAttention(options),
                ", M " + std::to_string(sizes.hidden) + ", weights " + std::to_string(weights),
                call, false, layout, layout, bytes);
    return;
  }
  const RowLayout layout = drawn_row_layout(bytes, rows);
  if (form == 1) {
    FactorisedCall<T> call(sequence, fills, weights);
    try_sharded(fovea::FactorisedSynthesizerAttention(options),
                ", weights " + std::to_string(weights), call, false, layout, layout, bytes);
  } else {
    RandomCall<T> call(sequence, fills, weights);
    try_sharded(fovea::RandomSynthesizerAttention(options), ", weights " + std::to_string(weights),
                call, false, layout, layout, bytes);
  }
}

TEST(DistributedDrawnSynthesizer, EqualsOneProcess) {
  each_drawn_over_ranks(40, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_synthesizer
