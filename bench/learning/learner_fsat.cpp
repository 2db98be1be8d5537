// SPDX-License-Identifier: MIT
// The learner of FSAT layers, and of the ablations of Table 3 (Zhuang et al. 2022).
#include "bench/learning/model.hpp"
#ifdef FOVEA_BENCH_FFTW
#include <fovea/layers/fsat_layer.hpp>
#endif

namespace learning {

#ifdef FOVEA_BENCH_FFTW

/// Training has random edges besides the predicted ones, different ones in each step and layer. The
/// ablations of the paper's Table 3 have one kind of edges only.
template <>
struct Companion<fovea::FsatLayer<float>> : fovea::LayerParts<Companion<fovea::FsatLayer<float>>> {
  Companion() = default;
  Companion(const Settings& settings, const Task&, fovea::Initialiser&) : seed_(settings.seed) {
    const std::string name = name_of(settings.system);
    if (name == "fsat_random") training_ = inference_ = fovea::EdgeSource::random;
    if (name == "fsat_predicted") training_ = fovea::EdgeSource::predicted;
  }

  template <class Blocks>
  void before_step(Blocks& blocks, std::uint64_t step) {
    set(blocks, training_, step);
  }
  template <class Blocks>
  void before_evaluation(Blocks& blocks) {
    set(blocks, inference_, 0);
  }
  template <class Blocks, class Saved>
  void learn(Blocks&, const Saved&, const Batch&) {}

 private:
  template <class Blocks>
  void set(Blocks& blocks, fovea::EdgeSource edges, std::uint64_t step) const {
    std::uint64_t layer = 0;
    for (auto& block : blocks) {
      fovea::FsatOptions& options = block.attention.op().options;
      options.edges = edges;
      options.seed = (seed_ << 40) + step * blocks.size() + layer++;
    }
  }

  std::uint64_t seed_ = 0;
  fovea::EdgeSource training_ = fovea::EdgeSource::both;
  fovea::EdgeSource inference_ = fovea::EdgeSource::predicted;
};

#endif

std::unique_ptr<Learner> make_fsat_learner(const Settings& settings, const Task& task) {
  const std::string name = name_of(settings.system);
  if (name != "fsat" && name != "fsat_no_truncation" && name != "fsat_random" &&
      name != "fsat_predicted") {
    return nullptr;
  }
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
  options.attention.truncate_gradient = name != "fsat_no_truncation";
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
