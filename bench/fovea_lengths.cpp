// SPDX-License-Identifier: MIT
/// \file
/// Time and memory of a training step against the length: Figure 6 of FMMformer (Nguyen et al.
/// 2021). See --help.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/entries/far_entry.hpp"
#include "bench/entries/softmax_entry.hpp"
#include "bench/io/compare_arguments.hpp"
#include "bench/io/compare_json.hpp"
#include "bench/io/compare_plots.hpp"
#include "bench/io/json.hpp"
#include "bench/io/program.hpp"
#include "bench/io/table_program.hpp"
#include "bench/measure/compare_measure.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/io/output_file.hpp"
#include "tests/support/memory.hpp"

namespace {

using namespace bench;

constexpr Index kWidth = 64;
constexpr int kRepeat = 5;
constexpr double kLongRun = 4;  // seconds: a step that takes longer runs once
constexpr Index kSampledRows = 4;

std::vector<Entry> operators_of_figure() {
  using fovea::EluMinusPlusOne;
  using fovea::EluPlusOne;
  using fovea::LinearAttention;
  using fovea::TanhPlusOne;
  constexpr Pass pass = Pass::training;
  const LinearAttention<EluPlusOne> rank_1;
  const LinearAttention<EluPlusOne, EluMinusPlusOne> rank_2;
  const LinearAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne> rank_3;
  const fovea::FmmThreeKernels fmm({.band = fovea::kBand30});
  return {softmax_entry({"full", "dense", "softmax", pass}, fovea::FullAttention{}, {}),
          far_entry({"linear", "maps:1", "linear", pass}, rank_1, {}),
          far_entry({"linear", "maps:2", "rank 2", pass}, rank_2, {}),
          far_entry({"linear", "maps:3", "rank 3", pass}, rank_3, {}),
          far_entry({"fmm", "maps:3,band:29", "rank 3 + band 30", pass}, fmm, {})};
}

std::vector<Plot> figure_plots() {
  return {{"lengths_time", "Time of forward and backward, not causal", "milliseconds",
           milliseconds_of, false, PlotPasses::training, false},
          {"lengths_memory", "Memory of forward and backward, not causal",
           "bytes, without q, k, v and the gradient of the output", bytes_of, true,
           PlotPasses::training, false}};
}

/// One operator at one length. Row::workspace_bytes is what --help says of memory.
Row measure_step(const Entry& entry, const HeadTensors& tensors) {
  const AllInputs<float> in = tensors.first(tensors.q_shape[2]);
  const AttentionShape shape = fovea::shape_of(in);
  ThreadPool pool(1);
  Row row = row_of(entry, shape.keys);
  const std::ptrdiff_t before = fovea_test::heap().reset();
  std::vector<float> out(tensors.q.size());
  const Prepared step = entry.f32.prepare(in, View<float>(out.data(), tensors.q_shape));
  fovea_test::heap().reset();
  std::vector<double> times = {seconds_of([&] { step.run(pool); })};
  const auto d_out = static_cast<std::ptrdiff_t>(out.size() * sizeof(float));
  row.workspace_bytes = fovea_test::heap().peak - before - d_out;
  PeakSample peak;
  peak.add(fma_burst<float>());
  const Stopwatch wall;
  const CpuStopwatch cpu;
  if (times[0] < kLongRun) times = timed_runs(kRepeat, [&] { step.run(pool); });
  row.cpu_share = times[0] < kLongRun ? cpu.share(wall.seconds(), 1) : 1;
  row.runs = static_cast<int>(times.size());
  row.seconds = times[times.size() / 2];
  row.least_seconds = times.front();
  row.useful_gflops = entry.flops(shape) / row.seconds * 1e-9;
  peak.add(fma_burst<float>());
  row.peak_fraction = row.useful_gflops * 1e9 / peak.best();
  row.sustained_fraction = row.useful_gflops * 1e9 / peak.sustained();
  row.error = step.error(kSampledRows);
  return row;
}

std::string figure_json(const Comparison& run) {
  Json json = facts("fovea_lengths", run.command, run.machine);
  json.update(
      {{"caption", subtitle_of(run)},
       {"what", "one training step, forward and backward; not causal, B = 1, float32"},
       {"heads", run.shape.query_heads},
       {"width", run.shape.width},
       {"threads", run.arguments.threads},
       {"peak_bytes", "peak of allocated memory, without q, k, v and the gradient of the output"},
       {"seconds", run.seconds}});
  for (const Row& row : run.rows) {
    json["results"].push_back({{"operator", row.names.op},
                               {"variant", row.names.variant},
                               {"label", row.names.label},
                               {"n", row.n},
                               {"runs", row.runs},
                               {"milliseconds", row.seconds * 1e3},
                               {"least_milliseconds", row.least_seconds * 1e3},
                               {"cpu_share", row.cpu_share},
                               {"useful_gflops", row.useful_gflops},
                               {"peak_fraction", row.peak_fraction},
                               {"sustained_fraction", row.sustained_fraction},
                               {"peak_bytes", row.workspace_bytes},
                               {"error_ratio", row.error.ratio}});
  }
  return text_of(json);
}

/// \throws ArgumentError
CompareArguments parse(int argc, char** argv) {
  CompareArguments parsed;
  parsed.heads = 1;
  for (Index n = 512; n <= 65536; n *= 2) parsed.lengths.push_back(n);
  CommandLine line(
      "fovea_lengths",
      "time and memory of one training step, forward and backward, against N, for "
      "softmax attention, linear attention, far fields of rank 2 and 3, and one of rank "
      "3 with a band of bandwidth 30 (|i - j| < 30). Not causal, one head, one thread, "
      "float32.");
  add_lengths(line, parsed);
  add_plots(line, parsed, "lengths.json and plots");
  add_draw(line, parsed);
  line.footer(
      "Memory is the peak of allocations by operator new, excluding q, k, v and the gradient of "
      "the output: the output, what forward saves, the gradients of q, k and v, and scratch.");
  parsed.help = !line.parse(argc, argv);
  return parsed;
}

HeadTensors random_tensors(Index heads, Index n) {
  const fovea::Shape shape = {1, heads, n, kWidth};
  const Index size = heads * n * kWidth;
  return {shape, shape, shape, gaussians(1, 0, size), gaussians(1, 1, size), gaussians(1, 2, size)};
}

/// Returns whether every operator was right.
bool run_figure(Comparison& run) {
  bool right = true;
  std::printf("%-18s %6s %10s %10s %6s %6s\n", "operator", "N", "ms", "memory", "peak", "error");
  for (const Index n : run.arguments.lengths) {
    const HeadTensors tensors = random_tensors(run.arguments.heads, n);
    run.shape = fovea::shape_of(tensors.first(n));
    for (const Entry& entry : operators_of_figure()) {
      const Row& row = run.rows.emplace_back(measure_step(entry, tensors));
      const bool is_right = row.error.ratio <= kErrorLimit;
      right = right && is_right;
      std::printf("%-18s %6td %10.3f %10s %6.2f %6.2f%s\n", row.names.label.c_str(), row.n,
                  row.seconds * 1e3, human_bytes(static_cast<double>(row.workspace_bytes)).c_str(),
                  row.peak_fraction, row.error.ratio, is_right ? "" : "  WRONG");
      std::fflush(stdout);
    }
  }
  if (!right) std::fprintf(stderr, "fovea_lengths: an operator is wrong\n");
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  return exit_status("fovea_lengths", [&] {
    return run_table({"fovea_lengths", figure_plots(), run_figure, figure_json}, parse(argc, argv),
                     {argv, argv + argc});
  });
}
