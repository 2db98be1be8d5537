// SPDX-License-Identifier: MIT
// The learner of FSAT layers.
#include "bench/learning/model.hpp"
#ifdef FOVEA_BENCH_FFTW
#include <fovea/layers/fsat_layer.hpp>
#endif

namespace learning {

#ifdef FOVEA_BENCH_FFTW

/// Training has random edges beside the predicted ones, other ones in each step and layer.
template <>
struct Companion<fovea::FsatLayer<float>> : fovea::LayerParts<Companion<fovea::FsatLayer<float>>> {
  Companion() = default;
  Companion(const Settings& settings, const Task&, fovea::Initialiser&) : seed_(settings.seed) {}

  template <class Blocks>
  void before_step(Blocks& blocks, std::uint64_t step) {
    std::uint64_t layer = 0;
    for (auto& block : blocks) {
      block.attention.set_training((seed_ << 40) + step * blocks.size() + layer++);
    }
  }
  template <class Blocks>
  void before_evaluation(Blocks& blocks) {
    for (auto& block : blocks) block.attention.set_inference();
  }
  template <class Blocks, class Saved>
  void learn(Blocks&, const Saved&, const Batch&) {}

 private:
  std::uint64_t seed_ = 0;
};

#endif

std::unique_ptr<Learner> make_fsat_learner(const Settings& settings, const Task& task) {
  if (settings.system.substr(0, settings.system.find(':')) != "fsat") return nullptr;
  const Index dominant = numbers_of(settings.system, {4})[0];
  if (task.asks_rows()) {
    throw std::invalid_argument("--systems '" + settings.system + "' does not go with --task " +
                                settings.task + ": FSAT has no causal form");
  }
#ifdef FOVEA_BENCH_FFTW
  using Layer = fovea::FsatLayer<float>;
  fovea::FsatLayerOptions options;
  options.width = settings.width;
  options.heads = settings.heads;
  options.dominant = dominant;
  options.attention.max_length = task.length();
  // As in the paper, the network is half as wide, since the maps of the cross have weights, too.
  return std::make_unique<LearnerOf<Layer>>(
      settings, task, [&](fovea::Initialiser& initialiser) { return Layer(options, initialiser); },
      2 * settings.width);
#else
  (void)dominant;
  throw std::invalid_argument("--systems '" + settings.system +
                              "': this build has no FFTW, which it needs");
#endif
}

}  // namespace learning
