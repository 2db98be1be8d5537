// SPDX-License-Identifier: MIT
/// \file
/// Training steps per second and peak memory of encoder layers against the vanilla Transformer
/// layer: Table 2 of FSAT (Zhuang et al. 2022). See --help.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bench/baselines/dense_attention.hpp"
#include "bench/io/compare_arguments.hpp"
#include "bench/io/compare_json.hpp"
#include "bench/io/compare_plots.hpp"
#include "bench/io/compare_table.hpp"
#include "bench/io/gaussian.hpp"
#include "bench/io/json.hpp"
#include "bench/io/program.hpp"
#include "bench/io/table_program.hpp"
#include "bench/measure/compare_measure.hpp"
#include "fovea/attention/big_bird.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/attention/strided.hpp"
#include "fovea/io/output_file.hpp"
#include "fovea/layers.hpp"
#include "fovea/layers/fat_layer.hpp"
#include "fovea/layers/fourier_mixer_layer.hpp"
#include "fovea/layers/fsat_layer.hpp"
#include "tests/support/memory.hpp"

namespace {

using namespace bench;
using fovea::EncoderBlock;
using fovea::Initialiser;
using fovea::MultiHead;

constexpr Index kWidth = 256;
constexpr Index kHeads = 4;
constexpr Index kHidden = 1024;

/// A layer with its optimiser, ready to be trained.
using Step = std::function<void(ThreadPool&)>;

struct Model {
  std::string label;
  std::function<Step(Index n)> make;
};

/// Trains a block towards y = 0 on noise: what is learnt is not the matter here.
/// \param make_layer make_layer(n, initialiser)   \param hidden channels of the feed-forward
/// network
template <class F>
Model model_of(std::string label, Index hidden, const F& make_layer) {
  using Layer = std::invoke_result_t<F, Index, Initialiser&>;
  struct State {
    EncoderBlock<Layer, float> block;
    typename EncoderBlock<Layer, float>::Saved saved;
    fovea::Adam<float> adam;
    std::vector<float> noise;
    fovea::Buffer<float> y;
    fovea::Buffer<float> d_x;
  };
  const auto make = [=](Index n) -> Step {
    auto state = std::make_shared<State>();
    Initialiser initialiser(1);
    Layer layer = make_layer(n, initialiser);
    state->block = EncoderBlock<Layer, float>(std::move(layer), kWidth, hidden, initialiser);
    state->noise = gaussians(1, 0, n * kWidth);
    return [state, n](ThreadPool& pool) {
      State& s = *state;
      const fovea::Shape shape = {1, 1, n, kWidth};
      const View<const float> x(s.noise.data(), shape);
      const View<float> y = s.y.resize(shape);
      const View<float> d_x = s.d_x.resize(shape);
      fovea::zero_gradients(s.block);
      s.block.forward(x, y, s.saved, pool);
      s.block.backward(x, s.saved, y, d_x, pool);  // y is the gradient of |y|^2 / 2
      s.adam.step(s.block, pool);
    };
  };
  return {std::move(label), make};
}

/// Sizes of layers: P projected keys, m landmarks, blocks and chunks of b rows, as in the
/// configurations of the Long Range Arena.
constexpr Index kProjected = 256;
constexpr Index kLandmarks = 64;
constexpr Index kBlock = 64;

template <class Op>
Model multi_head(std::string label, const Op& op) {
  return model_of(std::move(label), kHidden, [op](Index n, Initialiser& initialiser) {
    return MultiHead<Op, float>(op,
                                {.width = kWidth,
                                 .heads = kHeads,
                                 .sorted_blocks = n / kBlock,
                                 .length = n,
                                 .projected = kProjected},
                                initialiser);
  });
}

Model reformer() {
  return model_of("Reformer", kHidden, [](Index, Initialiser& initialiser) {
    return fovea::ReformerLayer<float>(
        {.width = kWidth, .heads = kHeads, .attention = {.chunk = kBlock}}, initialiser);
  });
}

template <class Op>
Model synthesizer(std::string label) {
  return model_of(std::move(label), kHidden, [](Index n, Initialiser& initialiser) {
    return fovea::SynthesizerLayer<Op, float>({.width = kWidth, .heads = kHeads, .length = n},
                                              initialiser);
  });
}

Model fourier_mixer() {
  return model_of("FNet", kHidden,
                  [](Index, Initialiser&) { return fovea::FourierMixerLayer<float>(kWidth); });
}

/// FsatLayer or FatLayer.
template <class Layer, class Options>
Model crossed(std::string label, Options options) {
  options.width = kWidth;
  options.heads = kHeads;
  return model_of(std::move(label), kHidden / 2, [options](Index n, Initialiser& initialiser) {
    Options sized = options;
    if constexpr (requires { sized.attention.max_length; }) sized.attention.max_length = n;
    Layer layer(sized, initialiser);
    if constexpr (requires { layer.set_training(1); }) layer.set_training(1);
    return layer;
  });
}

/// The first one is what the others are measured against.
std::vector<Model> models() {
  return {multi_head("Transformer, N x N kept", DenseAttention{}),
          multi_head("local, 128 + 128", fovea::LocalAttention{{128, 128}}),
          multi_head("Linformer, P = 256", fovea::LinformerAttention{}),
          reformer(),
          multi_head("Sinkhorn, b = 64", fovea::SinkhornAttention{{.block = kBlock}}),
          synthesizer<fovea::DenseSynthesizerAttention>("Synthesizer, dense"),
          multi_head("BigBird", fovea::BigBirdAttention{}),
          multi_head("linear, elu + 1", fovea::LinearAttention<fovea::EluPlusOne>{}),
          multi_head("Performer, R = 64", fovea::PerformerAttention{}),
          crossed<fovea::FsatLayer<float>>("FSAT", fovea::FsatLayerOptions{}),
          crossed<fovea::FatLayer<float>>("FAT", fovea::FatLayerOptions{}),
          multi_head("Transformer, full", fovea::FullAttention{}),
          multi_head("strided, 128", fovea::StridedAttention{{.stride = 128}}),
          multi_head("Longformer", fovea::LongformerAttention{}),
          synthesizer<fovea::RandomSynthesizerAttention>("Synthesizer, random"),
          multi_head("Nystroem, m = 64", fovea::NystroemAttention{{.landmarks = kLandmarks}}),
          fourier_mixer(),
          multi_head("Smart Bird, K = 20", fovea::SmartBirdAttention{{.keys_per_row = 20}})};
}

/// \return a row whose workspace is the peak of what a step allocates
Row measure_model(const Model& model, Index n, int repeat, ThreadPool& pool) {
  Row row;
  row.names = {system_of(model.label), "", model.label, Pass::training};
  row.n = n;
  const std::ptrdiff_t before = fovea_test::heap().reset();
  const Step step = model.make(n);
  step(pool);
  row.workspace_bytes = fovea_test::heap().peak - before;
  const Stopwatch wall;
  const CpuStopwatch cpu;
  const std::vector<double> times = timed_runs(repeat, [&] { step(pool); });
  row.cpu_share = cpu.share(wall.seconds(), pool.concurrency());
  row.seconds = times[times.size() / 2];
  row.least_seconds = times.front();
  return row;
}

/// Peak bytes over those of the first model of the same length.
double relative_memory(const std::vector<Row>& rows, const Row& row) {
  const Row& vanilla = *std::ranges::find(rows, row.n, &Row::n);
  return static_cast<double>(row.workspace_bytes) / static_cast<double>(vanilla.workspace_bytes);
}

bool measure_all(Comparison& run) {
  ThreadPool pool(run.arguments.threads);
  run.shape = {.batch = 1,
               .query_heads = kHeads,
               .key_heads = kHeads,
               .queries = 0,
               .keys = 0,
               .width = kWidth / kHeads,
               .value_width = kWidth / kHeads};
  std::printf("%-24s %6s %10s %10s %8s %8s\n", "layer", "N", "ms a step", "memory", "speed",
              "memory");
  for (const Index n : run.arguments.lengths) {
    const std::size_t vanilla = run.rows.size();
    for (const Model& model : models()) {
      Row& row = run.rows.emplace_back(measure_model(model, n, run.arguments.repeat, pool));
      row.speed_up = run.rows[vanilla].seconds / row.seconds;
      std::printf("%-24s %6td %10.2f %10s %8.2f %8.3f\n", row.names.label.c_str(), row.n,
                  row.seconds * 1e3, human_bytes(static_cast<double>(row.workspace_bytes)).c_str(),
                  *row.speed_up, relative_memory(run.rows, row));
      std::fflush(stdout);
    }
  }
  return true;
}

std::string table_json(const Comparison& run) {
  Json json = facts("fovea_layers", run.command, run.machine);
  json.update({{"caption", subtitle_of(run)},
               {"what", "one training step of an encoder layer: forward, backward, Adam; float32"},
               {"width", kWidth},
               {"heads", kHeads},
               {"threads", run.arguments.threads},
               {"peak_bytes", "peak of memory allocated by operator new, without weights"}});
  for (const Row& row : run.rows) {
    json["results"].push_back({{"label", row.names.label},
                               {"n", row.n},
                               {"milliseconds", row.seconds * 1e3},
                               {"least_milliseconds", row.least_seconds * 1e3},
                               {"cpu_share", row.cpu_share},
                               {"peak_bytes", row.workspace_bytes},
                               {"relative_steps_per_second", *row.speed_up},
                               {"relative_peak_memory", relative_memory(run.rows, row)}});
  }
  return text_of(json);
}

/// \throws ArgumentError
CompareArguments parse(int argc, char** argv) {
  CompareArguments parsed;
  parsed.lengths = {1024, 2048, 3072, 4096};
  parsed.repeat = 5;
  CommandLine line("fovea_layers",
                   "measures training steps per second and peak memory of one encoder layer "
                   "(attention and feed-forward network, each after a normalisation), relative to "
                   "the same layer whose attention stores its N x N weights. This is Table 2 of "
                   "FSAT (Zhuang et al. 2022) with its sizes for bytes of text: width 256, 4 "
                   "heads, feed-forward width 1024 (512 in FSAT and FAT, as in the paper), one "
                   "sequence, float32. The systems of that table come first, then others.");
  add_lengths(line, parsed);
  add_threads(line, parsed);
  add_repeat(line, parsed, "timed steps, of which the median is shown");
  add_plots(line, parsed, "layers.json and plots");
  add_draw(line, parsed);
  line.footer(
      "A step is forward, backward and Adam. Memory is the peak of allocations by operator new: "
      "activations and their gradients, what is saved for the backward pass, and scratch, but not "
      "weights, which Eigen allocates.");
  parsed.help = !line.parse(argc, argv);
  return parsed;
}

std::vector<Plot> table_plots() {
  return {{"layers_time", "Time of a training step of one layer, not causal (strided: causal)",
           "milliseconds", milliseconds_of, false, PlotPasses::training, false},
          {"layers_memory", "Memory of a training step of one layer, not causal (strided: causal)",
           "bytes, without the weights", bytes_of, true, PlotPasses::training, false}};
}

}  // namespace

int main(int argc, char** argv) {
  return exit_status("fovea_layers", [&] {
    return run_table({"fovea_layers", table_plots(), measure_all, table_json}, parse(argc, argv),
                     {argv, argv + argc});
  });
}
