// SPDX-License-Identifier: MIT
/// \file
/// Attention operators on real input, side by side: time, memory, error, and how far each is from
/// full attention. See --help.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "bench/entries/operators.hpp"
#include "bench/io/compare_arguments.hpp"
#include "bench/io/compare_input.hpp"
#include "bench/io/compare_json.hpp"
#include "bench/io/compare_plots.hpp"
#include "bench/io/compare_progress.hpp"
#include "bench/io/compare_sources.hpp"
#include "bench/io/compare_table.hpp"
#include "bench/io/document_sketch.hpp"
#include "bench/io/program.hpp"
#include "bench/measure/compare_measure.hpp"
#include "fovea/io/output_file.hpp"

namespace {

using namespace bench;

/// Embeds the document, or reads the tensors; says what it is. \throws std::runtime_error
HeadTensors load(Comparison& run) {
  CompareArguments& arguments = run.arguments;
  if (!arguments.qkv_directory.empty()) {
    HeadTensors tensors = read_qkv(arguments.qkv_directory);
    const Index rows = tensors.q_shape[2];
    if (arguments.lengths_given && arguments.lengths.back() > rows) {
      throw std::runtime_error(arguments.qkv_directory + ": has " + std::to_string(rows) +
                               " rows; --lengths asks for " +
                               std::to_string(arguments.lengths.back()));
    }
    std::erase_if(arguments.lengths, [&](Index n) { return n > rows; });
    if (arguments.lengths.empty()) arguments.lengths = {rows};
    check_finite(tensors, arguments.lengths.back(), arguments.qkv_directory);
    run.input = "q, k, v of " + arguments.qkv_directory + ", " + fovea::to_string(tensors.q_shape);
    return tensors;
  }
  const Document document = document_of(arguments, FOVEA_SOURCE_DIR);
  run.input = document.what;
  const Index longest = arguments.lengths.back();
  const double bytes = 6.0 * sizeof(float) * static_cast<double>(longest) *
                       static_cast<double>(arguments.heads * arguments.width);
  if (bytes > static_cast<double>(available_bytes())) {
    throw std::runtime_error("q, k, v and three outputs take " + human_bytes(bytes) +
                             ", more than the free memory; ask for shorter --lengths");
  }
  return embed_text(document.bytes, longest, arguments.heads, arguments.width);
}

/// What the time of a cell grows with: the flops of its visible pairs, or of the pairs that it
/// computes and then masks.
double work_of(const Entry& entry, AttentionShape shape, Index n) {
  shape.queries = entry.queries(n);
  shape.keys = n;
  const double flops = entry.flops(shape);
  return entry.plan_stats ? flops / entry.plan_stats(shape).useful() : flops;
}

/// The work of every cell, [lengths][entries].
std::vector<std::vector<double>> work_of_all(const std::vector<Entry>& entries,
                                             const Comparison& run) {
  std::vector<std::vector<double>> work;
  for (const Index n : run.arguments.lengths) {
    work.emplace_back();
    for (const Entry& entry : entries) work.back().push_back(work_of(entry, run.shape, n));
  }
  return work;
}

/// Seconds until the end, the cell (length, entry) and those after it.
double seconds_left(const Forecast& forecast, const std::vector<Entry>& entries,
                    const std::vector<std::vector<double>>& work, const Comparison& run,
                    std::size_t length, std::size_t entry) {
  double seconds = 0;
  for (std::size_t l = length; l < work.size(); ++l) {
    for (std::size_t e = l == length ? entry : 0; e < entries.size(); ++e) {
      if (run.arguments.lengths[l] > entries[e].longest) continue;
      seconds += forecast.seconds(entries[e].names.label, run.arguments.lengths[l], work[l][e]);
    }
  }
  return seconds;
}

/// How many pairs of an operator and a length are compared.
int cell_count(const std::vector<Entry>& entries, const std::vector<Index>& lengths) {
  int count = 0;
  for (const Entry& entry : entries) {
    for (const Index n : lengths) count += n <= entry.longest ? 1 : 0;
  }
  return count;
}

/// Runs every operator over the lengths; the JSON is rewritten after each length.
void compare(Comparison& run, HeadTensors& tensors, const std::string& json_file) {
  const Stopwatch total;
  std::vector<Entry> entries = operators();
  std::erase_if(entries, [](const Entry& entry) { return entry.names.label.empty(); });
  const std::vector<Index>& lengths = run.arguments.lengths;
  const std::vector<std::vector<double>> work = work_of_all(entries, run);
  ThreadPool pool(run.arguments.threads);
  Progress progress(cell_count(entries, lengths));
  Forecast forecast(run.arguments.repeat);
  print_header();
  for (std::size_t l = 0; l < lengths.size(); ++l) {
    Yardsticks full;
    tensors.sketch = document_sketch(tensors.first(lengths[l]), kSketchWidth);
    for (std::size_t e = 0; e < entries.size(); ++e) {
      if (lengths[l] > entries[e].longest) continue;
      const Stopwatch cell;
      progress.begin(entries[e].names.label, lengths[l],
                     seconds_left(forecast, entries, work, run, l, e));
      std::vector<float> out;
      Row row = measure(entries[e], tensors, lengths[l], run.arguments.repeat, pool, out);
      if (row.skipped.empty()) full.compare(entries[e], out, row);
      forecast.learn(row, work[l][e], cell.seconds());
      progress.clear();
      print_row(row);
      run.rows.push_back(std::move(row));
    }
    run.seconds = total.seconds();
    fovea::write_file(json_file, to_json(run));
  }
  std::printf("%s", mask_factors(run.rows).c_str());
}

/// Warns if other processes took the cores. Returns whether every operator ran and was right.
bool judge(const Comparison& run) {
  double least = 1;
  bool right = true;
  bool ran = true;
  for (const Row& row : run.rows) {
    ran = ran && !row.failed;
    if (!row.skipped.empty()) continue;
    least = std::min(least, row.cpu_share);
    right = right && row.error.ratio <= kErrorLimit;
  }
  if (least < 0.9) {
    std::fprintf(stderr,
                 "note: the machine was busy: one cell had its cores for only %.0f %% of the time, "
                 "and its speed is that much too low\n",
                 least * 100);
  }
  if (!right) {
    std::fprintf(stderr, "fovea_compare: an operator is wrong: its error is above %.0f units\n",
                 kErrorLimit);
  }
  if (!ran) std::fprintf(stderr, "fovea_compare: an operator could not run: see the table\n");
  return right && ran;
}

int run_program(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + std::min(argc, 1), argv + argc);
  Comparison run;
  run.arguments = parse_compare_arguments(words);
  if (run.arguments.help) {
    std::fputs(std::string(kCompareHelp).c_str(), stdout);
    return 0;
  }
  run.command.assign(argv, argv + argc);
  HeadTensors tensors = load(run);
  const std::string& directory = run.arguments.directory;
  const std::string json_file =
      run.arguments.json_file.empty() ? directory + "/compare.json" : run.arguments.json_file;
  const std::string script = directory + "/compare.gp";
  make_directory(directory);
  fovea::check_output(json_file);
  check_plots(script, compare_plots(), directory);

  run.shape = fovea::shape_of(tensors.first(tensors.q_shape[2]));
  for (const auto& [key, value] : machine_facts())
    std::printf("%s: %s\n", key.c_str(), value.c_str());
  std::printf("input: %s\n", run.input.c_str());
  std::printf("%s, threads: %d, type: float32\n\n", heads_and_width(run.shape).c_str(),
              run.arguments.threads);
  compare(run, tensors, json_file);

  const bool is_drawn = draw(script, gnuplot_script(run, compare_plots(), directory));
  const bool right = judge(run);
  std::printf("\n%s: all numbers\n", json_file.c_str());
  if (is_drawn) {
    for (const Plot& plot : compare_plots()) {
      std::printf("%s/%s.svg, .png: %s\n", directory.c_str(), plot.file.c_str(),
                  plot.title.c_str());
    }
  }
  std::printf("took %s\n", human_seconds(run.seconds).c_str());
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return exit_status("fovea_compare", [&] { return run_program(argc, argv); });
}
