// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention over lists of keys over ranks, which are given, chosen by a sketch or predicted, with
/// drawn options, sizes, data and places: the bits are those of one process.
#include <gtest/gtest.h>

#include "attention/dominant_fill.hpp"
#include "distributed/drawn_trial.hpp"
#include "fovea/distributed/fsat_backward.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/indexed_backward.hpp"
#include "fovea/distributed/indexed_forward.hpp"
#include "fovea/distributed/smart_bird_backward.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"

namespace fovea_test::distributed_drawn_lists {

/// Ascending keys, `step` apart on average, then -1.
Tensor<Index> drawn_lists(Bytes& bytes, const AttentionShape& s, std::uint64_t seed) {
  const Index places = bytes(1, 12);
  const Index step = bytes.once_in(2) ? 2 : bytes(1, 200);
  Tensor<Index> lists({s.batch, s.query_heads, s.queries, places});
  for (Index b = 0; b < s.batch; ++b) {
    for (Index h = 0; h < s.query_heads; ++h) {
      for (Index n = 0; n < s.queries; ++n) {
        Index key = static_cast<Index>(uniform(hash(seed, b, h, n, 0)) *
                                       static_cast<double>(s.keys + s.keys / 8));
        for (Index c = 0; c < places; ++c) {
          lists(b, h, n, c) = key < s.keys ? key : -1;
          key +=
              1 + static_cast<Index>(hash(seed, b, h, n, c + 1) % static_cast<std::uint64_t>(step));
        }
      }
    }
  }
  return lists;
}

/// Lists that are given.
template <class T>
struct IndexedCall : ShardedCall<T> {
  IndexedCall(const DrawnSequence& s, const Fills& fills, Tensor<Index> lists)
      : ShardedCall<T>(s, fills),
        indices(this->template add<Index>("indices", Role::read, Held::rows, lists.shape())) {
    indices.whole = std::move(lists);
  }

  AllInputs<T> inputs(Where where) const {
    AllInputs<T> in = ShardedCall<T>::inputs(where);
    in.indices = indices.in(where);
    return in;
  }

  ShardedTensor<Index>& indices;
};

template <class T>
void try_indexed(Bytes& bytes) {
  const DrawnSequence sequence(bytes, 1, 1500);
  fovea::IndexedAttention op;
  op.options.causal = bytes.once_in(2);
  op.options.scale = drawn_scale(bytes);
  const Fills fills = drawn_fills(bytes, sequence.seed);
  IndexedCall<T> call(sequence, fills, drawn_lists(bytes, sequence.shape, sequence.seed));
  const RowLayout layout = drawn_row_layout(bytes, sequence.shape.queries);
  try_sharded(op, "", call, false, layout, layout, bytes);
}

/// A sketch, and the lists that it chooses.
template <class T>
struct SmartBirdCall : ShardedCall<T> {
  SmartBirdCall(const DrawnSequence& s, const Fills& fills, Index keys_per_row, Index width)
      : ShardedCall<T>(s, fills),
        sketch_q(this->add("sketch_q", Role::read, Held::rows,
                           {s.shape.batch, 1, s.shape.queries, width}, gaussian(s.seed + 10))),
        sketch_k(this->add("sketch_k", Role::read, Held::rows,
                           {s.shape.batch, 1, s.shape.keys, width}, gaussian(s.seed + 11))),
        indices(this->template add<Index>("indices", Role::made, Held::rows,
                                          s.of_queries(keys_per_row))) {}

  AllInputs<T> inputs(Where where) const {
    AllInputs<T> in = ShardedCall<T>::inputs(where);
    in.sketch_q = sketch_q.in(where);
    in.sketch_k = sketch_k.in(where);
    return in;
  }
  AllSaved<T> saved(Where where) const { return {this->lse.in(where), indices.in(where)}; }

  ShardedTensor<fovea::Compute<T>>&sketch_q, &sketch_k;
  ShardedTensor<Index>& indices;
};

template <class T>
void try_smart_bird(Bytes& bytes) {
  const DrawnSequence sequence(bytes, 1, 1500);
  const fovea::SmartBirdAttention op(drawn_smart_bird(bytes));
  const Index width = bytes(1, 8);
  SmartBirdCall<T> call(sequence, drawn_fills(bytes, sequence.seed), op.options.keys_per_row,
                        width);
  const RowLayout layout = drawn_row_layout(bytes, sequence.shape.queries);
  try_sharded(op, "", call, false, layout, layout, bytes);
}

/// Dominant indices.
template <class T>
struct FsatCall : ShardedCall<T> {
  FsatCall(const DrawnSequence& s, const Fills& fills, Index slots_per_key, Index most)
      : ShardedCall<T>(s, fills),
        dominant(this->add("dominant", Role::read, Held::rows, s.of_queries(slots_per_key),
                           dominant_fill(s.seed + 3, static_cast<double>(most)))),
        d_dominant(
            this->add("d_dominant", Role::gradient, Held::rows, s.of_queries(slots_per_key))) {}

  AllInputs<T> inputs(Where where) const {
    AllInputs<T> in = ShardedCall<T>::inputs(where);
    in.dominant = dominant.in(where);
    return in;
  }
  AllGrads<T> grads(Where where) const {
    AllGrads<T> all = ShardedCall<T>::grads(where);
    if constexpr (std::floating_point<T>) all.dominant = d_dominant.in(where);
    return all;
  }

  ShardedTensor<fovea::Compute<T>>&dominant, &d_dominant;
};

template <class T>
void try_fsat(Bytes& bytes) {
  const DrawnSequence sequence(bytes, 1, 1500);
  const fovea::FsatOptions options = drawn_fsat(bytes, sequence.shape.keys);
  const Index slots_per_key = bytes(1, 6);
  FsatCall<T> call(sequence, drawn_fills(bytes, sequence.seed), slots_per_key, options.max_length);
  const RowLayout layout = drawn_row_layout(bytes, sequence.shape.queries);
  try_sharded(fovea::FsatAttention(options), "", call, false, layout, layout, bytes);
}

template <class T>
void try_any(Bytes& bytes) {
  switch (bytes(0, 2)) {
    case 0:
      return try_indexed<T>(bytes);
    case 1:
      return try_smart_bird<T>(bytes);
    default:
      return try_fsat<T>(bytes);
  }
}

TEST(DistributedDrawnLists, EqualOneProcess) {
  each_drawn_over_ranks(90, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_any_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_lists
