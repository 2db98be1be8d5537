// SPDX-License-Identifier: MIT
/// \file
/// Attention over lists of keys over ranks, which are given, chosen by a sketch or predicted, with
/// drawn options, sizes, data and places: the bits are those of one process.
#include <gtest/gtest.h>

#include "attention/dominant_fill.hpp"
#include "distributed/drawn_call.hpp"
#include "fovea/distributed/fsat_backward.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/indexed_backward.hpp"
#include "fovea/distributed/indexed_forward.hpp"
#include "fovea/distributed/smart_bird_backward.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"

namespace fovea_test::distributed_drawn_lists {

/// Lists that are given.
struct Lists {
  Tensor<Index> indices = Tensor<Index>();

  Lists own_part(const Rows& rows, Bytes& own) const {
    return {fovea_test::own_part(indices, rows, drawn_input_layout(own))};
  }
  template <class T>
  void put(AllInputs<T>& inputs) const {
    inputs.indices = indices.view();
  }
  template <class Tensors>
  void put(Tensors& /*saved_or_grads*/) const {}
  void expect_saved(const Lists& /*whole*/, const Rows& /*rows*/) const {}
  void expect_gradients(const Lists& /*whole*/, const Rows& /*rows*/) const {}
};

/// A sketch, and the lists that it chooses.
template <class T>
struct Sketch {
  Tensor<T> q = Tensor<T>();
  Tensor<T> k = Tensor<T>();
  Tensor<Index> indices = Tensor<Index>();

  Sketch own_part(const Rows& rows, Bytes& own) const {
    return {fovea_test::own_part(q, rows, drawn_input_layout(own)),
            fovea_test::own_part(k, rows, drawn_input_layout(own)),
            fovea_test::own_part(indices, rows, drawn_layout(own))};
  }
  void put(AllInputs<T>& inputs) const {
    inputs.sketch_q = q.view();
    inputs.sketch_k = k.view();
  }
  void put(AllSaved<T>& saved) const { saved.indices = indices.view(); }
  void put(AllGrads<T>& /*grads*/) const {}
  void expect_saved(const Sketch& whole, const Rows& rows) const {
    expect_own_part(indices, whole.indices, rows, "indices");
  }
  void expect_gradients(const Sketch& /*whole*/, const Rows& /*rows*/) const {}
};

/// Dominant indices.
template <class T>
struct Dominant {
  Tensor<T> indices = Tensor<T>();
  Tensor<T> gradient = Tensor<T>();

  Dominant own_part(const Rows& rows, Bytes& own) const {
    return {fovea_test::own_part(indices, rows, drawn_input_layout(own)),
            fovea_test::own_part(gradient, rows, drawn_layout(own))};
  }
  void put(AllInputs<T>& inputs) const { inputs.dominant = indices.view(); }
  void put(AllSaved<T>& /*saved*/) const {}
  void put(AllGrads<T>& grads) const { grads.dominant = gradient.view(); }
  void expect_saved(const Dominant& /*whole*/, const Rows& /*rows*/) const {}
  void expect_gradients(const Dominant& whole, const Rows& rows) const {
    expect_own_part(gradient, whole.gradient, rows, "d_dominant");
  }
};

/// Ascending keys in places that lie `step` apart on average, then -1.
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

template <class T>
void try_indexed(Bytes& bytes) {
  Problem<T> problem = drawn_square_problem<T>(bytes, {});
  fovea::IndexedAttention op;
  op.options.causal = bytes.once_in(2);
  if (bytes.once_in(3)) op.options.scale = 0.3;
  const DrawnWishes wishes{.backward = bytes.once_in(2)};
  const Lists lists{drawn_lists(bytes, problem.shape, problem.seed)};
  try_over_ranks(op, std::move(problem), wishes, bytes, "", lists);
}

template <class T>
void try_smart_bird(Bytes& bytes) {
  Problem<T> problem = drawn_square_problem<T>(bytes, {});
  const AttentionShape& s = problem.shape;
  const fovea::SmartBirdAttention op(drawn_smart_bird(bytes));
  const Index width = bytes(1, 8);
  Sketch<T> sketch{Tensor<T>({s.batch, 1, s.queries, width}),
                   Tensor<T>({s.batch, 1, s.keys, width}),
                   Tensor<Index>({s.batch, s.query_heads, s.queries, op.options.keys_per_row})};
  sketch.q.fill(gaussian(problem.seed + 10));
  sketch.k.fill(gaussian(problem.seed + 11));
  const DrawnWishes wishes{.backward = bytes.once_in(2)};
  try_over_ranks(op, std::move(problem), wishes, bytes, "", sketch);
}

template <class T>
void try_fsat(Bytes& bytes) {
  Problem<T> problem = drawn_square_problem<T>(bytes, {});
  const AttentionShape& s = problem.shape;
  const fovea::FsatOptions options = drawn_fsat(bytes, s.keys);
  const Shape slots = {s.batch, s.query_heads, s.keys, bytes(1, 6)};
  Dominant<T> dominant{Tensor<T>(slots), Tensor<T>(slots)};
  dominant.indices.fill(dominant_fill(problem.seed + 3, static_cast<double>(options.max_length)));
  const DrawnWishes wishes{.backward = bytes.once_in(2)};
  try_over_ranks(fovea::FsatAttention(options), std::move(problem), wishes, bytes, "", dominant);
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

TEST(DistributedDrawnLists, HaveTheBitsOfOneProcess) {
  each_drawn_over_ranks(90, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    bytes.once_in(2) ? try_any<double>(bytes) : try_any<float>(bytes);
  });
}

}  // namespace fovea_test::distributed_drawn_lists
