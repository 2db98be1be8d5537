// SPDX-License-Identifier: MIT
// fovea_test(NEEDS fftw)
#include "fovea/layers/fat_layer.hpp"
#include "fovea/layers/fsat_layer.hpp"
#include "layers/tiny_model.hpp"

namespace fovea_test::layers_fsat_layer_training {

TEST(Training, FsatLayer) {
  using Layer = fovea::FsatLayer<double>;
  for (const auto map :
       {fovea::HiddenMapKind::fully_connected, fovea::HiddenMapKind::convolution}) {
    fovea::FsatLayerOptions options;
    options.width = 8;
    options.heads = 2;
    options.map = map;
    options.attention.max_length = 10;
    fovea::Initialiser initialiser(1);
    expect_learning(Layer(options, initialiser), 80, [](Layer& layer, int step) {
      layer.set_training(static_cast<std::uint64_t>(step));
    });
  }
}

TEST(Training, FatLayer) {
  using Layer = fovea::FatLayer<double>;
  fovea::FatLayerOptions options;
  options.width = 8;
  options.heads = 2;
  fovea::Initialiser initialiser(1);
  expect_learning(Layer(options, initialiser), 80, [](Layer& /*layer*/, int /*step*/) {});
}

}  // namespace fovea_test::layers_fsat_layer_training
