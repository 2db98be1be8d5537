// SPDX-License-Identifier: MIT
/// \file
/// Time of the selection of keys by blocks and of the exhaustive one, for clustered sketches,
/// random ones, and one of a document. See --help.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "bench/io/compare_arguments.hpp"
#include "bench/io/compare_input.hpp"
#include "bench/io/compare_json.hpp"
#include "bench/io/compare_sources.hpp"
#include "bench/io/document_sketch.hpp"
#include "bench/io/gaussian.hpp"
#include "bench/io/json.hpp"
#include "bench/io/program.hpp"
#include "bench/measure/machine.hpp"
#include "bench/measure/stopwatch.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/io/output_file.hpp"

namespace {

using namespace bench;

constexpr Index kHeads = 8, kKeysPerRow = 20;
constexpr int kRepeat = 3;

struct Times {
  std::string data;
  bool causal = false;
  Index n = 0;
  double exhaustive = 0, blocks = 0, ratio = 0;  // seconds, and the median of the quotients
  bool same = false;
};

std::vector<float> clustered(std::uint32_t stream, Index n) {
  constexpr Index centres = 32;
  const std::vector<float> centre = gaussians(5, 0, centres * kSketchWidth, 1.5f);
  std::vector<float> x = gaussians(5, stream, n * kSketchWidth, 0.3f);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / kSketchWidth;
    const std::uint64_t of = row * 0x9e3779b97f4a7c15u >> 59;  // one of the 32
    x[i] += centre[of * kSketchWidth + i % kSketchWidth];
  }
  return x;
}

Sketch<float> sketch_of(const std::string& data, const HeadTensors& document, Index n) {
  if (data == "document") return document_sketch(document.first(n), kSketchWidth);
  const fovea::Shape shape = {1, 1, n, kSketchWidth};
  if (data == "clustered") return {shape, shape, clustered(1, n), clustered(2, n)};
  return {shape, shape, gaussians(6, 1, n * kSketchWidth), gaussians(6, 2, n * kSketchWidth)};
}

Times measure(const std::string& data, const Sketch<float>& sketch, bool causal) {
  using fovea::SketchSearch;
  const Index n = sketch.k_shape[2];
  const fovea::Shape shape = {1, kHeads, n, kKeysPerRow};
  fovea::SketchInputs<float> in;
  in.sketch_q = {sketch.q.data(), sketch.q_shape};
  in.sketch_k = {sketch.k.data(), sketch.k_shape};
  fovea::IndexTensor lists[2] = {fovea::IndexTensor(shape), fovea::IndexTensor(shape)};
  std::array<std::vector<double>, 3> seconds;
  for (int repeat = 0; repeat < kRepeat; ++repeat) {
    for (const int way : {0, 1}) {
      const fovea::SmartBirdAttention op(
          {.keys_per_row = kKeysPerRow,
           .causal = causal,
           .search = way == 0 ? SketchSearch::exhaustive : SketchSearch::blocks});
      const CpuStopwatch watch;
      op.select<float>(in, lists[way].view());
      seconds[static_cast<std::size_t>(way)].push_back(watch.seconds());
    }
    seconds[2].push_back(seconds[0].back() / seconds[1].back());
  }
  for (std::vector<double>& x : seconds) std::sort(x.begin(), x.end());
  const auto* const first = lists[0].view().data();
  return {data,
          causal,
          n,
          seconds[0][kRepeat / 2],
          seconds[1][kRepeat / 2],
          seconds[2][kRepeat / 2],
          std::equal(first, first + kHeads * n * kKeysPerRow, lists[1].view().data())};
}

std::string search_json(const std::vector<std::string>& command, const std::vector<Times>& all) {
  Json json = facts("fovea_search", command, machine_facts());
  json["what"] = "selection of 20 keys for each row, 8 heads, d = 4, B = 1, float32";
  json["threads"] = 1;
  for (const Times& times : all) {
    json["results"].push_back({{"data", times.data},
                               {"causal", times.causal},
                               {"label", times.data + (times.causal ? ", causal" : "")},
                               {"n", times.n},
                               {"exhaustive_milliseconds", times.exhaustive * 1e3},
                               {"milliseconds", times.blocks * 1e3},
                               {"exhaustive_over_blocks", times.ratio}});
  }
  return text_of(json);
}

/// \throws ArgumentError
CompareArguments parse(int argc, char** argv) {
  CompareArguments parsed;
  parsed.lengths = {4096, 16384, 65536};
  CommandLine line(
      "fovea_search",
      "measures the time of Smart Bird's search by blocks and of the exhaustive search "
      "against N, alternating, on one thread: 20 keys for each row, 8 heads, a sketch of 4 "
      "dimensions, float32. Both must choose the same keys.");
  add_lengths(line, parsed);
  add_plots(line, parsed, "search.json");
  line.footer(
      "Sketches: 32 normal clouds of deviation 0.3 around centres of deviation 1.5 "
      "(\"clustered\"), "
      "normal numbers (\"normal\"), and the best sketch of the heads of fovea_compare over the "
      "sources (\"document\"). Times are CPU times, medians of 3.");
  parsed.help = !line.parse(argc, argv);
  return parsed;
}

int run_program(int argc, char** argv) {
  const CompareArguments arguments = parse(argc, argv);
  if (arguments.help) return 0;
  make_directory(arguments.directory);
  const std::string json_file = arguments.directory + "/search.json";
  fovea::check_output(json_file);
  const Index longest = arguments.lengths.back();
  const Document text = document_of(arguments, FOVEA_SOURCE_DIR);
  const HeadTensors document = embed_text(text.bytes, longest, 8, 64);
  std::vector<Times> all;
  bool same = true;
  std::printf("%-20s %6s %12s %12s %8s\n", "sketch", "N", "all, ms", "blocks, ms", "ratio");
  for (const char* data : {"clustered", "normal", "document"}) {
    for (const bool causal : {false, true}) {
      for (const Index n : arguments.lengths) {
        const Times& times = all.emplace_back(measure(data, sketch_of(data, document, n), causal));
        same = same && times.same;
        std::printf("%-20s %6td %12.1f %12.1f %8.2f%s\n",
                    (times.data + (causal ? ", causal" : "")).c_str(), n, times.exhaustive * 1e3,
                    times.blocks * 1e3, times.ratio, times.same ? "" : "  DIFFERENT KEYS");
        std::fflush(stdout);
      }
    }
  }
  fovea::write_file(json_file, search_json({argv, argv + argc}, all));
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return exit_status("fovea_search", [&] { return run_program(argc, argv); });
}
