// SPDX-License-Identifier: MIT
/// \file
/// How well operators approximate the attention of a trained model, and their cost. See --help.
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bench/io/compare_arguments.hpp"
#include "bench/io/compare_input.hpp"
#include "bench/io/compare_json.hpp"
#include "bench/io/compare_plots.hpp"
#include "bench/io/human.hpp"
#include "bench/io/program.hpp"
#include "bench/io/quality_report.hpp"
#include "bench/io/svg_plot.hpp"
#include "bench/measure/compare_measure.hpp"
#include "bench/measure/head_kinds.hpp"
#include "bench/measure/map_split.hpp"
#include "bench/measure/quality.hpp"
#include "fovea/io/output_file.hpp"

namespace {

using namespace bench;

constexpr const char* kFooter = R"(
A head is local, sink or far, depending on the keys with the largest share of its weight: the
nearest 64 (on each side), the first 4, or all others. A star marks the Pareto front: no other row
is both faster and nearer to full attention.

Nothing is trained. What an operator would learn is computed from the model's tensors if possible:
Smart Bird has a sketch of 4 dimensions for each key head, the best approximation of its logits; the
weights that blend FMM attention are fitted to each head; the projections of Linformer are the means
of segments; Sinkhorn sorts by the products of the blocks' means; FSAT has the best graph of M
queries for each key, the model's own keys and values, and no cross. Reformer is left out, since it
has one tensor for queries and keys, and so are Luna, the Synthesizers, FAT and the Fourier mixer,
whose parameters have no counterpart in a trained attention.)";

std::vector<Found> found_of(const Result& one, const Result& full) {
  std::vector<Found> heads;
  for (Index h = 0; h < full.out_view.heads(); ++h) heads.push_back(found(one, full, h));
  return heads;
}

/// What is measured; the run takes what is left out, and why.
std::vector<Choice> choices_of(Comparison& run) {
  std::vector<Choice> all = quality_choices(run.arguments.causal);
  std::vector<Choice> mixed = mixed_choices(run.shape.keys);
  for (Choice& choice : mixed) {
    if (run.arguments.causal) choice.obstacle = "it has no causal form";
    if (choice.obstacle.empty()) {
      all.push_back(std::move(choice));
    } else {
      run.left_out += (run.left_out.empty() ? "" : "; ") + choice.name() + ": " + choice.obstacle;
    }
  }
  return all;
}

void measure_all(QualityRun& to, const AllInputs<float>& in, const Result& full, ThreadPool& pool) {
  for (Choice& choice : choices_of(to.run)) {
    if (choice.prepare) choice.prepare(in, full, pool);
    const Result one(in);
    QualityRow row;
    const auto run = [&] { choice.run(in, one, pool); };
    run();
    const std::vector<double> times = timed_runs(to.run.arguments.repeat, run);
    row.seconds = times[(times.size() - 1) / 2];
    row.workspace_bytes = choice.workspace_bytes(to.run.shape);
    row.heads = found_of(one, full);
    if (!choice.has_pairs) {
      for (Found& head : row.heads) head.weight = std::numeric_limits<double>::quiet_NaN();
    }
    row.choice = std::move(choice);
    to.rows.push_back(std::move(row));
  }
  for (QualityRow& row : to.rows) {
    row.is_best = std::ranges::none_of(to.rows, [&](const QualityRow& other) {
      return other.seconds < row.seconds &&
             other.mean(&Found::distance, to.kinds) < row.mean(&Found::distance, to.kinds);
    });
  }
}

Found mean_of(const std::vector<Found>& heads) {
  Found sum;
  for (const Found& head : heads) {
    sum.distance += head.distance / static_cast<double>(heads.size());
    sum.cosine += head.cosine / static_cast<double>(heads.size());
    sum.weight += head.weight / static_cast<double>(heads.size());
  }
  return sum;
}

void try_policies(QualityRun& to, const AllInputs<float>& in, const Result& full,
                  ThreadPool& pool) {
  using fovea::SamplingPolicy;
  const std::pair<const char*, SamplingPolicy> policies[] = {
      {"squared inverse log", SamplingPolicy::squared_inverse_log},
      {"inverse log", SamplingPolicy::inverse_log},
      {"raw", SamplingPolicy::raw},
      {"top K", SamplingPolicy::top_k},
      {"random", SamplingPolicy::random}};
  for (const auto& [policy_name, policy] : policies) {
    PolicyRow row{policy_name, {}};
    for (const Index keys : kKeysOfFigure) {
      const Choice choice = smart_bird_choice("", policy, keys, to.run.arguments.causal);
      choice.prepare(in, full, pool);
      const Result one(in);
      choice.run(in, one, pool);
      row.of_keys.push_back(mean_of(found_of(one, full)));
    }
    to.policies.push_back(std::move(row));
  }
  PolicyRow best{"own best", {}};
  for (const Index keys : kKeysOfFigure) {
    const Result one(in);
    attend_to_best(in, {.keys_per_row = keys, .causal = to.run.arguments.causal}, one, pool);
    best.of_keys.push_back(mean_of(found_of(one, full)));
  }
  to.policies.push_back(std::move(best));
}

void split_maps(QualityRun& to, const AllInputs<float>& in) {
  std::array<std::vector<SplitRow>, 3> of_kind;
  std::array<int, 3> heads{};
  for (const HeadKind kind : kHeadKinds) {
    for (const Index band : kBands) {
      of_kind[static_cast<std::size_t>(kind)].push_back({kind, band, {}, 0});
    }
  }
  for (Index h = 0; h < in.q.heads(); ++h) {
    const auto kind = static_cast<std::size_t>(to.kinds[static_cast<std::size_t>(h)]);
    ++heads[kind];
    const Eigen::MatrixXd map = full_map(in, h, to.run.arguments.causal);
    const Index few = std::min(in.q.rows(), kRankRows);
    for (SplitRow& row : of_kind[kind]) {
      const std::array<double, 4> errors = split_errors(map, row.band);
      for (std::size_t r = 0; r < errors.size(); ++r) row.errors[r] += errors[r];
      row.rank += static_cast<double>(rank_without_band(map.topLeftCorner(few, few), row.band));
    }
  }
  for (std::size_t kind = 0; kind < 3; ++kind) {
    if (heads[kind] == 0) continue;
    for (SplitRow& row : of_kind[kind]) {
      for (double& error : row.errors) error /= heads[kind];
      row.rank /= heads[kind];
      to.splits.push_back(row);
    }
  }
}

void print(const QualityRun& all) {
  std::printf("heads:\n");
  for (std::size_t h = 0; h < all.shares.size(); ++h) {
    std::printf("  %zu: %s (first keys %.2f, near %.2f, far %.2f)\n", h, name(all.kinds[h]),
                all.shares[h].sink, all.shares[h].nearby, all.shares[h].distant);
  }
  std::printf("\n%-18s %-10s %8s %9s %7s %7s %7s %7s %7s %7s\n", "operator", "", "ms", "workspace",
              "weight", "rel. L2", "local", "sink", "far", "cosine");
  for (const QualityRow& row : all.rows) {
    const auto number = [&](double x) {
      return std::isnan(x) ? std::string("-") : detail::short_number(x, "%.3f");
    };
    std::string kinds;
    for (const HeadKind kind : kHeadKinds) {
      kinds += " " +
               std::string(7 - std::min<std::size_t>(
                                   7, number(row.mean(&Found::distance, all.kinds, &kind)).size()),
                           ' ') +
               number(row.mean(&Found::distance, all.kinds, &kind));
    }
    std::printf("%-18s %-10s %8.2f %9s %7s %7s%s %7s%s\n", row.choice.series.c_str(),
                row.choice.parameter.c_str(), row.seconds * 1e3,
                human_bytes(static_cast<double>(row.workspace_bytes)).c_str(),
                row.choice.has_pairs ? number(row.mean(&Found::weight, all.kinds)).c_str() : "none",
                number(row.mean(&Found::distance, all.kinds)).c_str(), kinds.c_str(),
                number(row.mean(&Found::cosine, all.kinds)).c_str(), row.is_best ? " *" : "");
  }
  if (!all.run.left_out.empty()) std::printf("\nomitted: %s\n", all.run.left_out.c_str());
  std::printf("\nweight of full attention on the keys of each policy\n%-20s", "K");
  for (const Index k : kKeysOfFigure) std::printf(" %7td", k);
  for (const PolicyRow& row : all.policies) {
    std::printf("\n%-20s", row.name.c_str());
    for (const Found& found : row.of_keys) std::printf(" %7.3f", found.weight);
  }
  std::printf(
      "\n\nrelative error (Frobenius) of the map without its band |i - j| < k by the best matrix "
      "of rank r, and its rank, first %td tokens\n%-6s %5s %7s %7s %7s %7s %7s\n",
      kRankRows, "heads", "k", "r = 0", "r = 1", "r = 2", "r = 3", "rank");
  for (const SplitRow& row : all.splits) {
    std::printf("%-6s %5td %7.3f %7.3f %7.3f %7.3f %7.1f\n", name(row.kind), row.band,
                row.errors[0], row.errors[1], row.errors[2], row.errors[3], row.rank);
  }
}

/// \throws ArgumentError
CompareArguments parse(int argc, char** argv) {
  CompareArguments parsed;
  parsed.lengths = {2048};
  parsed.repeat = 5;
  parsed.causal = true;
  CommandLine line(
      "fovea_quality",
      "replaces full attention on a trained model's queries, keys and values by other operators. "
      "It measures the distance of their output, the share of full attention's weight on the "
      "visible pairs (none for operators without pairs), and the time; then how well a band and a "
      "remainder of low rank approximate the maps. Medians on one thread, float32.");
  add_qkv(line, parsed);
  line.add_value("--causal yes", "",
                 "or no: also operators without a causal form, compared with full attention that "
                 "is not causal (yes)",
                 [&](const std::string& option, const std::string& text) {
                   if (text != "yes" && text != "no") {
                     throw ArgumentError(option + ": '" + text + "' is not yes or no");
                   }
                   parsed.causal = text == "yes";
                 });
  line.add("--length N", parsed.lengths[0], 1, 16384, "use at most the first N positions");
  add_repeat(line, parsed, "minimum number of timed runs of each row");
  add_plots(line, parsed, "quality.svg, policies.svg and quality.json");
  line.add("--json FILE", parsed.json_file, "the JSON file (quality.json in that directory)");
  add_draw(line, parsed);
  line.footer(kFooter);
  parsed.help = !line.parse(argc, argv);
  parsed.lengths_given = line.has("--length");
  return parsed;
}

void draw(const std::vector<SvgPlot>& plots, const std::string& directory) {
  for (const SvgPlot& plot : plots) {
    fovea::write_file(directory + "/" + plot.file + ".svg", svg_text(plot));
  }
}

int run_program(int argc, char** argv) {
  QualityRun all;
  all.run.arguments = parse(argc, argv);
  if (all.run.arguments.help) return 0;
  if (!all.run.arguments.drawn_file.empty()) {
    const std::vector<SvgPlot> drawn =
        read_result(all.run.arguments.drawn_file, "fovea_quality", pictures);
    make_directory(all.run.arguments.directory);
    draw(drawn, all.run.arguments.directory);
    return 0;
  }
  all.run.command.assign(argv, argv + argc);
  all.run.machine = machine_facts();
  const Stopwatch watch;
  const HeadTensors tensors =
      tensors_of_directory(all.run.arguments, FOVEA_SOURCE_DIR, all.run.input, "--length");
  const Index n = all.run.arguments.lengths[0];
  const std::string& directory = all.run.arguments.directory;
  make_directory(directory);
  const std::string json_file = all.run.arguments.json_file.empty() ? directory + "/quality.json"
                                                                    : all.run.arguments.json_file;
  fovea::check_output(json_file);
  for (const char* file : {"/quality.svg", "/policies.svg"}) fovea::check_output(directory + file);
  const AllInputs<float> in = tensors.first(n);
  all.run.shape = fovea::shape_of(in);
  std::printf("input: %s\n%s, N = %td, %s\n", all.run.input.c_str(),
              heads_and_width(all.run.shape).c_str(), n,
              all.run.arguments.causal ? "causal" : "not causal");
  for (Index h = 0; h < in.q.heads(); ++h) {
    all.shares.push_back(weight_shares(in, h, all.run.arguments.causal));
    all.kinds.push_back(all.shares.back().kind());
  }
  ThreadPool pool(1);
  const Result full(in);
  fovea::FullAttention{{.causal = all.run.arguments.causal}}.forward(in, full.out_view,
                                                                     {full.lse_view}, pool);
  measure_all(all, in, full, pool);
  try_policies(all, in, full, pool);
  split_maps(all, in);
  all.run.seconds = watch.seconds();
  print(all);
  const Json json = quality_json(all);
  fovea::write_file(json_file, text_of(json));
  draw(pictures(json), directory);
  std::printf("took %s\n", human_seconds(all.run.seconds).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return exit_status("fovea_quality", [&] { return run_program(argc, argv); });
}
