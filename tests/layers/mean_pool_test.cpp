// SPDX-License-Identifier: MIT
#include "fovea/layers/mean_pool.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_mean_pool {

using Layer = fovea::MeanPool<double>;
using fovea::Tokens;

TEST(MeanPool, IsTheMeanOfVisibleRows) {
  const Activations x = drawn({3, 1, 5, 4}, 1);
  const Activations y({3, 1, 1, 4});
  const std::vector<Index> lengths = {5, 2, 0};
  Layer().forward(Tokens<double>(x.view(), lengths), y.view());
  for_each_index(y.shape(), [&](Index b, Index, Index, Index c) {
    double sum = 0;
    for (Index n = 0; n < lengths[as_size(b)]; ++n) sum += x(b, 0, n, c);
    EXPECT_DOUBLE_EQ(y(b, 0, 0, c), b == 2 ? 0 : sum / static_cast<double>(lengths[as_size(b)]));
  });
}

TEST(MeanPool, Gradients) {
  Layer pool;
  const std::vector<Index> lengths = {5, 2};
  const auto tokens = [&](const View<const double>& x) { return Tokens<double>(x, lengths); };
  expect_layer_gradients(pool, {2, 1, 5, 3}, {2, 1, 1, 3}, tokens);
}

}  // namespace fovea_test::layers_mean_pool
