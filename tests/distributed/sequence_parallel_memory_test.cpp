// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention to another sequence over ranks, where both are spread alike: the bits are those of one
/// process.
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/layers/cross_multi_head.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_sequence_parallel_memory {

using fovea::CrossTokens;
using fovea::Initialiser;
using fovea::kReductionBlock;
using fovea::distributed::sequence_parallel;

template <class T>
using Layer = fovea::CrossMultiHead<fovea::FullAttention, T>;

template <class T>
Layer<T> made() {
  Initialiser initialiser(3);
  return Layer<T>(
      fovea::FullAttention{},
      {.width = 12, .memory_width = 10, .heads = 4, .key_heads = 2, .bias = true, .sinks = true},
      initialiser);
}

/// A layer with its tensors.
template <class T>
struct Call {
  Call(const Tensor<T>& tokens, const Tensor<T>& of_memory, const Tensor<T>& gradient)
      : x(tokens.in({})),
        memory(of_memory.in({})),
        d_y(gradient.in({})),
        y(x.shape()),
        d_x(x.shape()),
        d_memory(memory.shape()) {}

  template <class E>
  void run(fovea::IndexSpan lengths, E&& executor) {
    const CrossTokens<T> tokens{.x = x.view(), .memory = memory.view(), .key_lengths = lengths};
    typename Layer<T>::Saved saved;
    layer.forward(tokens, y.view(), saved, executor);
    layer.backward(tokens, saved, View<const T>(d_y.view()), d_x.view(), d_memory.view(), executor);
  }

  Layer<T> layer = made<T>();
  Tensor<T> x, memory, d_y, y, d_x, d_memory;
};

template <class T>
class DistributedMemory : public testing::Test {};
TYPED_TEST_SUITE(DistributedMemory, Scalars);

TYPED_TEST(DistributedMemory, EqualsOneProcess) {
  using T = TypeParam;
  const Index count = 5 * kReductionBlock + 17;
  Tensor<T> x({2, 1, count, 12}), memory({2, 1, count, 10}), d_y(x.shape());
  x.fill(gaussian(3));
  memory.fill(gaussian(4));
  d_y.fill(gaussian(5));
  for (const std::vector<Index>& lengths :
       {std::vector<Index>{}, {3 * kReductionBlock + 9, count}}) {
    Call<T> whole(x, memory, d_y);
    whole.run(lengths, fovea::Serial{});
    for (const RowLayout& layout : chain_layouts(count)) {
      const Sharding rows(all_ranks(), layout);
      Call<T> own(own_part(x, rows), own_part(memory, rows), own_part(d_y, rows));
      sequence_parallel(rows, fovea::Serial{}, [&](auto& over) { own.run(lengths, over); });
      expect_own_part(own.y, whole.y, rows, layout.text());
      expect_own_part(own.d_x, whole.d_x, rows, layout.text() + ", d_x");
      expect_own_part(own.d_memory, whole.d_memory, rows, layout.text() + ", d_memory");
      expect_same(gradients_of<T>(own.layer), gradients_of<T>(whole.layer), layout.text());
    }
  }
}

TEST(DistributedMemoryBadInput, IncludesADifferentDistribution) {
  const Sharding rows = chain_rows(500);
  const Index own = rows.layout().count(0);
  const Tensor<float> x({1, 1, rows.own_count(), 12});
  const Tensor<float> y(x.shape());
  const Layer<float> layer = made<float>();
  const auto said = [&](Index more, const std::vector<Index>& lengths) {
    const Tensor<float> memory({1, 1, rows.own_count() + more, 10});
    return refused_over(rows, [&](auto& over) {
      layer.forward({.x = x.view(), .memory = memory.view(), .key_lengths = lengths}, y.view(),
                    over);
    });
  };
  EXPECT_EQ(said(0, {500}), "accepted");
  EXPECT_EQ(said(0, {501}),
            "rank 0: CrossMultiHead: key_lengths[0] is 501; expected 0 to 500, the rows of memory");
  EXPECT_EQ(said(1, {}), "rank 0: sequence_parallel: the activations have " +
                             std::to_string(own + 1) + " rows; expected " + std::to_string(own) +
                             ", the rows of rank 0");
}

}  // namespace fovea_test::distributed_sequence_parallel_memory
