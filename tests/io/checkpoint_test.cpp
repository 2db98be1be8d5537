// SPDX-License-Identifier: MIT
// fovea_test(NEEDS io)
#include "fovea/io/checkpoint.hpp"

#include "fovea/attention/full.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/io/safetensors.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/tiny_model.hpp"
#include "support/scratch_folder.hpp"

namespace fovea_test::io_checkpoint {

using Layer = fovea::MultiHead<fovea::FullAttention, double>;

TinyModel<Layer> make_model(std::uint64_t seed) {
  fovea::Initialiser initialiser(seed);
  return {Layer(fovea::FullAttention{}, {.width = 8, .heads = 2}, initialiser), initialiser};
}

fovea::Adam<double> make_adam() {
  return fovea::Adam<double>({.learning_rate = 1e-2, .weight_decay = 0.01, .clip_norm = 1.0});
}

std::vector<double> steps(TinyModel<Layer>& model, fovea::Adam<double>& adam, int count) {
  std::vector<double> losses;
  for (int step = 0; step < count; ++step) losses.push_back(model.step(adam, fovea::Serial{}));
  return losses;
}

TEST(Checkpoint, TrainingContinuesWithTheSameBits) {
  const ScratchFolder folder;
  for (const int before : {0, 1, 7}) {
    TinyModel<Layer> model = make_model(1);
    fovea::Adam<double> adam = make_adam();
    steps(model, adam, before);
    fovea::write_safetensors(folder / "x.safetensors",
                             fovea::checkpoint_of(model, adam, {.step = before, .seed = ~0ULL}));
    const std::vector<double> expected = steps(model, adam, 5);

    TinyModel<Layer> other = make_model(2);
    fovea::Adam<double> others = make_adam();
    steps(other, others, 3);
    const auto progress =
        fovea::load_checkpoint(other, others, fovea::read_safetensors(folder / "x.safetensors"));
    EXPECT_EQ(progress.step, before);
    EXPECT_EQ(progress.seed, ~0ULL);
    EXPECT_EQ(others.steps(), before);
    EXPECT_EQ(steps(other, others, 5), expected);
  }
}

/// What an operator's layer learns besides its projections is in the checkpoint, too.
TEST(Checkpoint, ContainsProjectionsOfGlobalRows) {
  using Global = fovea::MultiHead<fovea::LongformerAttention, double>;
  const auto make = [](std::uint64_t seed) {
    fovea::Initialiser initialiser(seed);
    const fovea::LongformerAttention op{{.left = 1, .right = 1, .first_global = 1}};
    return TinyModel<Global>{
        Global(op, {.width = 8, .heads = 2, .global_projections = true}, initialiser), initialiser};
  };
  TinyModel<Global> model = make(1), other = make(2);
  fovea::Adam<double> adam = make_adam(), others = make_adam();
  model.step(adam, fovea::Serial{});
  const auto set = fovea::checkpoint_of(model, adam, {.step = 1});
  EXPECT_TRUE(set.tensors.contains("attention.global_qkv.weight"));
  EXPECT_TRUE(set.tensors.contains("adam.mean.attention.global_qkv.weight"));
  fovea::load_checkpoint(other, others, set);
  EXPECT_EQ(other.step(others, fovea::Serial{}), model.step(adam, fovea::Serial{}));
}

TEST(Checkpoint, ContainsTheParametersByName) {
  TinyModel<Layer> model = make_model(1);
  fovea::Adam<double> adam = make_adam();
  const auto set = fovea::checkpoint_of(model, adam);
  TinyModel<Layer> other = make_model(2);
  fovea::load_parameters(other, set, {.allow_unknown = true});
  fovea::Adam<double> others = make_adam();
  EXPECT_EQ(steps(other, others, 3), steps(model, adam, 3));
}

TEST(Checkpoint, InvalidFilesChangeNothing) {
  TinyModel<Layer> model = make_model(1);
  fovea::Adam<double> adam = make_adam();
  steps(model, adam, 2);
  TinyModel<Layer> same = make_model(1);
  fovea::Adam<double> same_adam = make_adam();
  steps(same, same_adam, 2);
  const auto refused = [&](const std::function<void(fovea::TensorSet&)>& harm) {
    TinyModel<Layer> other = make_model(2);
    fovea::Adam<double> others = make_adam();
    fovea::TensorSet set = fovea::checkpoint_of(other, others);
    harm(set);
    EXPECT_THROW((void)fovea::load_checkpoint(model, adam, set), std::runtime_error);
    EXPECT_NE(adam.steps(), others.steps());
    EXPECT_EQ(adam.steps(), same_adam.steps());
  };
  refused([](fovea::TensorSet& set) { set.tensors.erase("adam.mean.attention.qkv.weight"); });
  refused([](fovea::TensorSet& set) { set.tensors.erase("attention.qkv.weight"); });
  refused([](fovea::TensorSet& set) { set.tensors.erase(set.tensors.begin()); });
  refused([](fovea::TensorSet& set) { set.tensors["more"] = set.tensors.begin()->second; });
  refused([](fovea::TensorSet& set) { set.metadata.erase("step"); });
  refused([](fovea::TensorSet& set) { set.metadata["seed"] = "-1"; });
  refused([](fovea::TensorSet& set) { set.metadata["adam.steps"] = "-3"; });
  refused([](fovea::TensorSet& set) { set.metadata["adam.steps"] = "3x"; });
  EXPECT_EQ(steps(model, adam, 3), steps(same, same_adam, 3));
}

}  // namespace fovea_test::io_checkpoint
