// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention by way of rows that all ranks have (landmarks, projected keys, packed rows), with
/// drawn options, sizes, data and places: the bits are those of one process.
#include <gtest/gtest.h>

#include <cmath>

#include "distributed/drawn_trial.hpp"
#include "fovea/distributed/linformer_backward.hpp"
#include "fovea/distributed/luna.hpp"
#include "fovea/distributed/nystroem_backward.hpp"

namespace fovea_test::distributed_drawn_shared {

using fovea::LinformerAttention;
using fovea::LunaPack;
using fovea::NystroemAttention;
using fovea::NystroemScale;

/// A little more than two segments of keys.
constexpr Index kLongest = 2 * fovea::kKeySegment + 200;

/// Rows that all ranks have: the fewest, some, or around the sizes of tiles.
Index drawn_shared_rows(Bytes& bytes, Index least) {
  switch (bytes(0, 3)) {
    case 0:
      return bytes(least, 3);
    case 1:
      return bytes(1, 4) * 32 + bytes(-1, 1);
    case 2:
      return bytes(1, 200);
    default:
      return bytes(1, 20);
  }
}

/// Ranges that begin anywhere, or with chains, blocks of rows, or segments of keys.
RowLayout drawn_ranges(Bytes& bytes, Index rows) {
  static const std::vector<Index> multiples = {
      1, 1, 1, fovea::kReductionBlock, 128, fovea::kKeySegment};
  return drawn_row_layout(bytes, rows, drawn_of(bytes, multiples));
}

template <class T>
struct NystroemCall : ShardedCall<T> {
  NystroemCall(const DrawnSequence& s, const Fills& fills, Index landmarks)
      : ShardedCall<T>(s, fills),
        landmark_lse(this->add("landmark_lse", Role::kept, Held::whole,
                               {s.shape.batch, s.shape.query_heads, landmarks, 1})),
        landmark_values(
            this->add("landmark_values", Role::kept, Held::whole,
                      {s.shape.batch, s.shape.query_heads, landmarks, s.shape.value_width})) {}

  fovea::NystroemInputs<T> inputs(Where where) const {
    return {.q = this->q.in(where),
            .k = this->k.in(where),
            .v = this->v.in(where),
            .key_lengths = this->sequence.lengths};
  }
  fovea::NystroemSaved<T> saved(Where where) const {
    return {this->lse.in(where), landmark_lse.in(where), landmark_values.in(where)};
  }
  fovea::NystroemGrads<T> grads(Where where) const {
    return {this->d_q.in(where), this->d_k.in(where), this->d_v.in(where)};
  }

  ShardedTensor<T>&landmark_lse, &landmark_values;
};

template <class T>
void try_nystroem(Bytes& bytes) {
  NystroemAttention op;
  op.options.landmarks = std::min<Index>(drawn_shared_rows(bytes, 1), 100);
  op.options.iterations = bytes(0, 6);
  if (bytes.once_in(2)) op.options.first_scale = NystroemScale::batch_max;
  op.options.scale = drawn_scale(bytes);
  const DrawnSequence sequence(bytes, op.options.landmarks, kLongest);
  NystroemCall<T> call(sequence, drawn_fills(bytes, sequence.seed), op.options.landmarks);
  const RowLayout layout = drawn_ranges(bytes, sequence.shape.queries);
  try_sharded(op, ", landmarks " + std::to_string(op.options.landmarks), call, false, layout,
              layout, bytes);
}

template <class T>
struct LinformerCall : ShardedCall<T> {
  LinformerCall(const DrawnSequence& s, const Fills& fills, Index projected, Index e_heads,
                Index f_heads)
      : ShardedCall<T>(s, fills),
        e(add_columns("E", Role::read, e_heads, projected, s.seed + 700)),
        f(add_columns("F", Role::read, f_heads, projected, s.seed + 800)),
        keys(this->add("projected keys", Role::kept, Held::whole,
                       {s.shape.batch, s.shape.key_heads, projected, s.shape.width})),
        values(this->add("projected values", Role::kept, Held::whole,
                         {s.shape.batch, s.shape.key_heads, projected, s.shape.value_width})),
        d_e(add_columns("d_E", Role::gradient, e_heads, projected, 0)),
        d_f(add_columns("d_F", Role::gradient, f_heads, projected, 0)) {}

  fovea::LinformerInputs<T> inputs(Where where) const {
    fovea::LinformerInputs<T> in;
    in.q = this->q.in(where);
    in.k = this->k.in(where);
    in.v = this->v.in(where);
    in.key_lengths = this->sequence.lengths;
    in.key_projection = e.in(where);
    in.value_projection = f.in(where);
    return in;
  }
  fovea::LinformerSaved<T> saved(Where where) const {
    return {this->lse.in(where), keys.in(where), values.in(where)};
  }
  fovea::LinformerGrads<T> grads(Where where) const {
    return {this->d_q.in(where), this->d_k.in(where), this->d_v.in(where), d_e.in(where),
            d_f.in(where)};
  }

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
void try_linformer(Bytes& bytes) {
  const LinformerAttention op({.scale = drawn_scale(bytes)});
  const DrawnSequence sequence(bytes, 1, 2000);
  const Index projected = drawn_shared_rows(bytes, 1);
  const Index e_heads = bytes.once_in(2) ? 1 : sequence.shape.key_heads;
  const Index f_heads = bytes.once_in(2) ? 1 : sequence.shape.key_heads;
  LinformerCall<T> call(sequence, drawn_fills(bytes, sequence.seed), projected, e_heads, f_heads);
  const RowLayout layout = drawn_ranges(bytes, sequence.shape.queries);
  try_sharded(op, ", projected keys " + std::to_string(projected), call, false, layout, layout,
              bytes);
}

template <class T>
struct LunaCall : ShardedCall<T> {
  LunaCall(const DrawnSequence& s, const Fills& fills, bool is_pack, Index packed)
      : ShardedCall<T>(
            s, fills,
            {s.shape.batch, s.shape.query_heads, is_pack ? packed : s.shape.queries, s.shape.width},
            is_pack ? Held::whole : Held::rows,
            {s.shape.batch, s.shape.key_heads, is_pack ? s.shape.keys : packed, s.shape.width},
            is_pack ? Held::rows : Held::whole),
        slopes(this->add("slopes", Role::read, Held::numbers, {1, 1, 1, s.shape.query_heads},
                         gaussian(s.seed + 700, 0.1))),
        sink(this->add("sink", Role::read, Held::numbers, {1, 1, 1, s.shape.query_heads},
                       gaussian(s.seed + 800))),
        d_sink(this->add("d_sink", Role::gradient, Held::numbers, {1, 1, 1, s.shape.query_heads})) {
    this->d_q.is_alike = is_pack;
    d_sink.is_alike = true;
  }

  fovea::SoftmaxInputs<T> inputs(Where where) const {
    fovea::SoftmaxInputs<T> in;
    in.q = this->q.in(where);
    in.k = this->k.in(where);
    in.v = this->v.in(where);
    in.key_lengths = this->sequence.lengths;
    in.alibi_slopes = slopes.numbers_in(where);
    in.sink = sink.numbers_in(where);
    return in;
  }
  fovea::SoftmaxSaved<T> saved(Where where) const { return {this->lse.in(where)}; }
  fovea::SoftmaxGrads<T> grads(Where where) const {
    fovea::SoftmaxGrads<T> all;
    all.q = this->d_q.in(where);
    all.k = this->d_k.in(where);
    all.v = this->d_v.in(where);
    all.sink = d_sink.numbers_in(where);
    return all;
  }

  ShardedTensor<T>&slopes, &sink, &d_sink;
};

template <class T, class Op>
void try_luna(Bytes& bytes) {
  constexpr bool is_pack = std::is_same_v<Op, LunaPack>;
  const Op op({.scale = drawn_scale(bytes)});
  DrawnSequence sequence(bytes, 1, kLongest);
  const Index packed = drawn_shared_rows(bytes, 0);
  if (!is_pack) {
    for (Index& length : sequence.lengths) length = bytes(0, packed);
  }
  LunaCall<T> call(sequence, drawn_fills(bytes, sequence.seed), is_pack, packed);
  if (!bytes.once_in(4)) call.slopes.role = Role::none;
  if (!bytes.once_in(4)) call.sink.role = call.d_sink.role = Role::none;
  const RowLayout layout = drawn_ranges(bytes, sequence.shape.queries);
  try_sharded(op, ", packed rows " + std::to_string(packed), call, false, layout, layout, bytes);
}

template <class T>
void try_any(Bytes& bytes) {
  switch (bytes(0, 3)) {
    case 0:
      return try_nystroem<T>(bytes);
    case 1:
      return try_linformer<T>(bytes);
    case 2:
      return try_luna<T, LunaPack>(bytes);
    default:
      return try_luna<T, fovea::LunaUnpack>(bytes);
  }
}

TEST(DistributedDrawnShared, EqualsOneProcess) {
  each_drawn_over_ranks(60, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_shared
