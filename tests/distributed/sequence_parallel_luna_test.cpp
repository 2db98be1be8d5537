// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Consecutive Luna layers over ranks: the bits of one process. All ranks have the packed sequence
/// and its gradient, and its contributions count once.
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/luna.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/layers/luna_layer.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_sequence_parallel_luna {

using fovea::Initialiser;
using fovea::kReductionBlock;
using fovea::LunaLayer;
using fovea::LunaLayerOptions;
using fovea::LunaOutputs;
using fovea::LunaTokens;
using fovea::distributed::sequence_parallel;

/// The tensors of tokens and of the packed sequence.
template <class T>
struct Both {
  Both(const Shape& tokens, const Shape& few) : x(tokens), packed(few) {
    x.fill(constant(77));
    packed.fill(constant(77));
  }
  Both(Tensor<T> tokens, Tensor<T> few) : x(std::move(tokens)), packed(std::move(few)) {}

  LunaOutputs<T> out() const { return {x.view(), packed.view()}; }
  LunaOutputs<const T> in() const { return {x.view(), packed.view()}; }

  Tensor<T> x, packed;
};

/// Two layers with their tensors, of which the second one's packed sequence may have no gradient.
template <class T>
struct Layers {
  Layers(const LunaLayerOptions& options, const Both<T>& given, const Both<T>& gradient)
      : from(given.x.in({}), given.packed.in({})),
        d_y(gradient.x.in({}), gradient.packed.in({})),
        middle(from.x.shape(), from.packed.shape()),
        y(from.x.shape(), from.packed.shape()),
        d_middle(from.x.shape(), from.packed.shape()),
        d_from(from.x.shape(), from.packed.shape()) {
    Initialiser initialiser(3);
    first = LunaLayer<T>(options, initialiser);
    second = LunaLayer<T>(options, initialiser);
  }

  /// Two steps, so that the gradients of the second are added to those of the first.
  template <class E>
  void run(fovea::IndexSpan lengths, bool uses_packed, E&& executor) {
    const auto tokens = [&](const Both<T>& x) {
      return LunaTokens<T>{x.x.view(), x.packed.view(), lengths};
    };
    LunaOutputs<const T> d = d_y.in();
    if (!uses_packed) d.packed = {};
    for (int step = 0; step < 2; ++step) {
      typename LunaLayer<T>::Saved of_first, of_second;
      first.forward(tokens(from), middle.out(), of_first, executor);
      second.forward(tokens(middle), y.out(), of_second, executor);
      second.backward(tokens(middle), of_second, d, d_middle.out(), executor);
      first.backward(tokens(from), of_first, d_middle.in(), d_from.out(), executor);
    }
  }

  std::vector<T> gradients() {
    std::vector<T> all;
    for (LunaLayer<T>* layer : {&first, &second}) {
      const std::vector<T> own = gradients_of<T>(*layer);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

  LunaLayer<T> first, second;
  Both<T> from, d_y, middle, y, d_middle, d_from;
};

/// The tokens of this rank, and the whole packed sequence.
template <class T>
Both<T> own_both(const Both<T>& whole, const Sharding& rows) {
  return {own_part(whole.x, rows), whole.packed.in({})};
}

template <class T>
void expect_both(const Both<T>& got, const Both<T>& want, const Sharding& rows,
                 const std::string& what) {
  expect_own_part(got.x, want.x, rows, what);
  expect_same(got.packed.values(), want.packed.values(), what + ", packed");
}

struct Sizes {
  Index batch, rows, packed;
};

template <class T, class X = fovea::Serial>
void check(const LunaLayerOptions& options, const Sizes& sizes,
           const std::vector<Index>& lengths = {}, bool uses_packed = true, X&& executor = {}) {
  Both<T> x({sizes.batch, 1, sizes.rows, options.width},
            {sizes.batch, 1, sizes.packed, options.width});
  x.x.fill(gaussian(3));
  x.packed.fill(gaussian(5));
  Both<T> d_y(x.x.shape(), x.packed.shape());
  d_y.x.fill(gaussian(4));
  d_y.packed.fill(gaussian(6));
  Layers<T> whole(options, x, d_y);
  whole.run(lengths, uses_packed, fovea::Serial{});
  for (const RowLayout& layout : chain_layouts(sizes.rows)) {
    const Sharding rows(all_ranks(), layout);
    Layers<T> own(options, own_both(x, rows), own_both(d_y, rows));
    sequence_parallel(rows, executor, [&](auto& over) { own.run(lengths, uses_packed, over); });
    expect_both(own.middle, whole.middle, rows, layout.text() + ", y of the first layer");
    expect_both(own.y, whole.y, rows, layout.text() + ", y");
    expect_both(own.d_middle, whole.d_middle, rows, layout.text() + ", d_y of the first layer");
    expect_both(own.d_from, whole.d_from, rows, layout.text() + ", d_x");
    expect_same(own.gradients(), whole.gradients(), layout.text());
  }
}

TEST(DistributedLunaLayer, EqualsOneProcess) {
  const LunaLayerOptions options = {.width = 48, .heads = 4, .key_heads = 2, .bias = true};
  for (const bool uses_packed : {true, false}) {
    check<float>(options, {2, 9 * kReductionBlock + 17, 5}, {}, uses_packed);
  }
  check<float>(options, {2, 5 * kReductionBlock, 70}, {3 * kReductionBlock + 9, kReductionBlock});
}

TEST(DistributedLunaLayer, EqualsOneProcessInDouble) {
  check<OtherScalar>({.width = 6, .heads = 3}, {1, 4 * kReductionBlock + 1, 9});
}

TEST(DistributedLunaLayer, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  check<float>({.width = 48, .heads = 4}, {1, 9 * kReductionBlock, 20}, {}, true, pool);
}

/// A forward pass needs no chains.
TEST(DistributedLunaLayer, ForwardSupportsAnyLayout) {
  Initialiser initialiser(3);
  const LunaLayer<float> layer({.width = 8, .heads = 2}, initialiser);
  Both<float> x({1, 1, 211, 8}, {1, 1, 3, 8});
  x.x.fill(gaussian(3));
  x.packed.fill(gaussian(5));
  const Both<float> y(x.x.shape(), x.packed.shape());
  layer.forward({x.x.view(), x.packed.view()}, y.out());
  for (const RowLayout& layout : layouts_of(211, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const Both<float> own = own_both(x, rows);
    const Both<float> to(own.x.shape(), own.packed.shape());
    sequence_parallel(rows, fovea::Serial{}, [&](auto& over) {
      layer.forward({own.x.view(), own.packed.view()}, to.out(), over);
    });
    expect_both(to, y, rows, layout.text());
  }
}

/// Lengths count tokens of all ranks, and all have as many packed rows.
TEST(DistributedLunaLayer, RefusesMismatchedTokens) {
  Initialiser initialiser(3);
  const LunaLayer<float> layer({.width = 8, .heads = 2}, initialiser);
  const Sharding rows = chain_rows(500);
  const auto said = [&](Index packed, const std::vector<Index>& lengths) {
    const Both<float> x({1, 1, rows.own_count(), 8}, {1, 1, packed, 8});
    const Both<float> y(x.x.shape(), x.packed.shape());
    return refused_over(rows, [&](auto& over) {
      layer.forward({x.x.view(), x.packed.view(), lengths}, y.out(), over);
    });
  };
  EXPECT_EQ(said(3, {500}), "accepted");
  EXPECT_EQ(said(3, {501}),
            "rank 0: LunaLayer: key_lengths[0] is 501; expected 0 to 500, the rows of x");
  if (all_ranks().size() == 1) return;
  const std::string text = said(all_ranks().rank() == 1 ? 4 : 3, {});
  EXPECT_NE(text.find("4 packed rows, where rank 0 calls LunaPack"), std::string::npos) << text;
}

}  // namespace fovea_test::distributed_sequence_parallel_luna
