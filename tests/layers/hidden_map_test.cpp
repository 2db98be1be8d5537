// SPDX-License-Identifier: MIT
#include "fovea/layers/hidden_map.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test {
namespace {

using Layer = fovea::HiddenMap<double>;
using fovea::HiddenMapKind;
using fovea::Tokens;

Layer layer(Index in, Index out, HiddenMapKind kind) {
  fovea::Initialiser initialiser(3);
  Layer made(in, out, initialiser, {.kind = kind});
  draw_parameters(made, 5);
  return made;
}

constexpr HiddenMapKind kKinds[] = {HiddenMapKind::fully_connected, HiddenMapKind::convolution};

TEST(HiddenMap, IsItsPartsOneAfterTheOther) {
  for (const HiddenMapKind kind : kKinds) {
    Layer map = layer(3, 4, kind);
    std::vector<fovea::RowMatrix<double>> weights;
    map.visit([&](fovea::Parameter<double>& p) { weights.push_back(p.value); });
    const bool convolves = kind == HiddenMapKind::convolution;
    ASSERT_EQ(weights.size(), convolves ? 3u : 2u);
    const Activations x = drawn({1, 1, 8, 3}, 1);
    const Activations y({1, 1, 8, 4});
    map.forward(x.view(), y.view());
    std::vector<double> expected;
    for_each_index(y.shape(), [&](Index, Index, Index n, Index j) {
      double sum = weights.back()(0, j);
      for (Index i = 0; i < 3; ++i) {
        double at = x(0, 0, n, i);
        if (convolves) {
          at = 0;
          for (Index t = 0; t < 5; ++t) {
            const Index from = n + t - 2;
            if (from >= 0 && from < 8) at += weights[0](t, i) * x(0, 0, from, i);
          }
        }
        sum += at * weights[weights.size() - 2](i, j);
      }
      expected.push_back(sum * std::erfc(-sum / std::sqrt(2)) / 2);
    });
    EXPECT_TRUE(close_to(y.values(), expected, 1e-14));
  }
}

TEST(HiddenMap, Gradients) {
  const std::vector<Index> lengths = {6, 4};
  for (const HiddenMapKind kind : kKinds) {
    Layer map = layer(3, 4, kind);
    expect_layer_gradients(map, {2, 1, 6, 3}, {2, 1, 6, 4},
                           [&](const View<const double>& x) { return Tokens<double>(x, lengths); });
  }
}

TEST(HiddenMap, ThreadsChangeNoBit) {
  for (const HiddenMapKind kind : kKinds) {
    Layer map = layer(20, 24, kind);
    expect_same_bits_for_threads(map, {2, 1, 200, 20}, {2, 1, 200, 24}, alone);
  }
}

}  // namespace
}  // namespace fovea_test
