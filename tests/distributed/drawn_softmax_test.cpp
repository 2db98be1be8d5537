// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Softmax attention over patterns over ranks, with drawn options, sizes, data and places: the bits
/// are those of one process.
#include <gtest/gtest.h>

#include "distributed/drawn_trial.hpp"
#include "fovea/distributed/longformer.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"

namespace fovea_test::distributed_drawn_softmax {

/// For a sequence of that many rows.
fovea::LongformerAttention drawn_longformer(Bytes& bytes, Index rows) {
  fovea::LongformerAttention op;
  draw_softmax(bytes, op.options);
  const Index most = bytes.once_in(2) ? 8 : 200;
  op.options.left = bytes(0, most);
  op.options.right = bytes(0, most);
  op.options.first_global = std::min(rows, bytes(0, 5));
  for (Index at = op.options.first_global + bytes(0, 30); at < rows; at += bytes(1, 90)) {
    op.options.global.push_back(at);
  }
  op.options.causal = bytes.once_in(2);
  return op;
}

template <class T>
struct SoftmaxCall : ShardedCall<T> {
  SoftmaxCall(const DrawnSequence& s, const Fills& fills, const Extras& extras)
      : ShardedCall<T>(s, fills),
        bias(this->add("bias", read_if(!extras.bias.empty()), Held::logits,
                       logits_shape(s.shape, extras.bias), bias_fill(s.seed, extras))),
        mask(this->template add<bool>("mask", read_if(!extras.mask.empty()), Held::logits,
                                      logits_shape(s.shape, extras.mask), mask_fill(s.seed))),
        slopes(this->add("slopes", read_if(extras.alibi), Held::numbers,
                         {1, 1, 1, s.shape.query_heads}, gaussian(s.seed + 700, 0.1))),
        sink(this->add("sink", read_if(extras.sink), Held::numbers, {1, 1, 1, s.shape.query_heads},
                       gaussian(s.seed + 800))),
        // A bias with one row for all queries has no distributed gradient.
        d_bias(this->add("d_bias", gradient_if(extras.bias.find('q') != std::string::npos),
                         Held::rows, bias.whole.shape())),
        d_sink(this->add("d_sink", gradient_if(extras.sink), Held::numbers, sink.whole.shape())) {
    d_bias.is_alike = d_sink.is_alike = true;
  }

  AllInputs<T> inputs(Where where) const {
    AllInputs<T> in = ShardedCall<T>::inputs(where);
    in.bias = bias.in(where);
    in.mask = mask.in(where);
    in.alibi_slopes = slopes.numbers_in(where);
    in.sink = sink.numbers_in(where);
    return in;
  }
  AllGrads<T> grads(Where where) const {
    AllGrads<T> all = ShardedCall<T>::grads(where);
    if constexpr (std::floating_point<T>) {
      all.bias = d_bias.in(where);
      all.sink = d_sink.numbers_in(where);
    }
    return all;
  }

  ShardedTensor<fovea::Compute<T>>& bias;
  ShardedTensor<bool>& mask;
  ShardedTensor<fovea::Compute<T>>&slopes, &sink, &d_bias, &d_sink;
};

/// \param draw draw(rows) draws the operator for a sequence of that many rows
template <class T, class Draw>
void try_softmax(Bytes& bytes, const Draw& draw) {
  const Extras extras = drawn_extras(bytes);
  DrawnSequence sequence(bytes, 1, 1500);
  const Index rows = sequence.shape.queries;
  SoftmaxCall<T> call(sequence, drawn_fills(bytes, sequence.seed), extras);
  const auto drawn = draw(rows);
  const RowLayout layout = drawn_row_layout(bytes, rows);
  if constexpr (requires { drawn.made; }) {
    try_sharded(drawn.op, drawn.made, call, false, layout, layout, bytes);
  } else {
    try_sharded(drawn, "", call, false, layout, layout, bytes);
  }
}

template <class T>
void try_any(Bytes& bytes) {
  switch (bytes(0, 7)) {
    case 0:
      return try_softmax<T>(bytes, [&](Index) { return drawn_full(bytes); });
    case 1:
      return try_softmax<T>(bytes, [&](Index) { return drawn_local(bytes); });
    case 2:
      return try_softmax<T>(bytes, [&](Index) { return drawn_strided(bytes); });
    case 3:
      return try_softmax<T>(bytes, [&](Index) { return drawn_fixed(bytes); });
    case 4:
      return try_softmax<T>(bytes, [&](Index) { return drawn_big_bird(bytes); });
    case 5:
    case 6:
      return try_softmax<T>(bytes, [&](Index) { return drawn_sparse(bytes); });
    default:
      return try_softmax<T>(bytes, [&](Index rows) { return drawn_longformer(bytes, rows); });
  }
}

TEST(DistributedDrawnSoftmax, EqualsOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_any_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_softmax
