// SPDX-License-Identifier: MIT
/// \file
/// Attention operators on real input, side by side: time, memory, error, and how far each is from
/// full attention. See --help.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/entries/operators.hpp"
#include "bench/io/advise_input.hpp"
#include "bench/io/compare_against.hpp"
#include "bench/io/compare_arguments.hpp"
#include "bench/io/compare_input.hpp"
#include "bench/io/compare_json.hpp"
#include "bench/io/compare_plots.hpp"
#include "bench/io/compare_progress.hpp"
#include "bench/io/compare_table.hpp"
#include "bench/io/document_sketch.hpp"
#include "bench/io/html_report.hpp"
#include "bench/io/program.hpp"
#include "bench/measure/compare_measure.hpp"
#include "bench/measure/last_rows.hpp"
#include "bench/measure/selection.hpp"
#include "fovea/io/output_file.hpp"

namespace {

using namespace bench;

/// Reads the tensors, or embeds the document; says what it is. \throws std::runtime_error
HeadTensors load(Comparison& run) {
  CompareArguments& arguments = run.arguments;
  if (arguments.advise) return tensors_to_advise_on(arguments, FOVEA_SOURCE_DIR, run.input);
  if (arguments.text_file.empty()) {
    return tensors_of_directory(arguments, FOVEA_SOURCE_DIR, run.input);
  }
  return embedded_document(arguments, FOVEA_SOURCE_DIR, run.input);
}

/// Rounds the tensors to the requested type, if it has 16 bits. \throws std::runtime_error if it
/// cannot represent them
void round_tensors(HeadTensors& tensors, const Comparison& run) {
  if (!has_16_bits(run.arguments.type)) return;
  if (run.arguments.type == TensorType::f16) round_to<Eigen::half>(tensors);
  if (run.arguments.type == TensorType::bf16) round_to<Eigen::bfloat16>(tensors);
  check_finite(tensors, run.arguments.lengths.back(), run.input, type_name(run.arguments));
}

/// The requested entries that support the type. \param left_out the others, with reasons   \throws
/// ArgumentError
std::vector<Entry> entries_of(const CompareArguments& arguments, std::string& left_out) {
  std::vector<Entry> entries = selected(operators(), arguments);
  if (has_16_bits(arguments.type)) left_out = keep_16_bits(entries, arguments.type);
  return entries;
}

/// What the time of a cell grows with: the flops of its visible pairs, or of the pairs that it
/// computes and then masks.
double work_of(const Entry& entry, AttentionShape shape, Index n) {
  shape.queries = entry.queries(n);
  shape.keys = n;
  const double flops = entry.flops(shape);
  return entry.plan_stats ? flops / entry.plan_stats(shape).useful() : flops;
}

/// An operator at one length.
struct Trial {
  const Entry* entry;
  Index n;
  double work;
};

/// All of a comparison, in the order of the table.
std::vector<Trial> trials_of(const std::vector<Entry>& entries, const Comparison& run) {
  std::vector<Trial> all;
  for (const Index n : run.arguments.lengths) {
    for (const Entry& entry : entries) {
      if (n <= entry.longest) all.push_back({&entry, n, work_of(entry, run.shape, n)});
    }
  }
  return all;
}

/// What runs the cells of one comparison.
template <class T>
class Comparer {
 public:
  Comparer(Comparison& run, std::vector<Entry> entries, HeadTensorsOf<T>& tensors,
           const OtherRun* other)
      : run_(run),
        tensors_(tensors),
        other_(other),
        entries_(std::move(entries)),
        trials_(trials_of(entries_, run)),
        pool_(run.arguments.threads),
        progress_(static_cast<int>(trials_.size())),
        forecast_(run.arguments.repeat) {}

  /// Runs every operator over the lengths; the JSON is rewritten after each cell.
  void run(const std::string& json_file) {
    const Stopwatch total;
    const bool prints_rows = !run_.arguments.advise;  // advice is sorted, when all have run
    if (prints_rows) print_header(other_ != nullptr);
    Index n = 0;
    for (const Trial& trial : trials_) {
      if (trial.n != n) {
        n = trial.n;
        full_ = {};
        tensors_.sketch = document_sketch(tensors_.first(n), kSketchWidth);
      }
      progress_.begin(trial.entry->names.label, n, seconds_from(trial));
      Row row = measured(trial);
      progress_.clear();
      if (prints_rows) print_row(row);
      run_.rows.push_back(std::move(row));
      run_.seconds = total.seconds();
      fovea::write_file(json_file, to_json(run_));
    }
  }

 private:
  /// Seconds until the end, of a trial and those after it.
  double seconds_from(const Trial& first) const {
    double seconds = 0;
    for (const Trial* trial = &first; trial != trials_.data() + trials_.size(); ++trial) {
      seconds += forecast_.seconds(trial->entry->names.label, trial->n, trial->work);
    }
    return seconds;
  }

  /// A row, of a pass that would not take too long.
  Row measured(const Trial& trial) {
    const Entry& entry = *trial.entry;
    const Index n = trial.n;
    const double seconds = forecast_pass(trial);
    if (seconds > run_.arguments.limit) {
      Row row = row_of(entry, n);
      row.skipped = "a pass would take about " + human_seconds(std::max(1.0, seconds)) +
                    "; --limit is " + detail::short_number(run_.arguments.limit, "%g") + " s";
      return row;
    }
    const Stopwatch watch;
    std::vector<T> out;
    Row row = measure(entry, tensors_, n, run_.arguments.repeat, pool_, out);
    if (row.skipped.empty()) full_.compare(entry, out, row);
    if (row.skipped.empty() && run_.arguments.advise && !row.difference) {
      row.compared_rows = std::min(kComparedRows, n);
      row.difference =
          distance_of_last_rows(tensors_.first(n), out, entry.causal, row.compared_rows, pool_);
    }
    forecast_.learn(row, trial.work, watch.seconds());
    if (other_ != nullptr) row.other_seconds = other_->seconds(row);
    return row;
  }

  /// Seconds of a pass, from a shorter one; 0 if nothing is known of it.
  double forecast_pass(const Trial& trial) {
    constexpr Index probed = 512;
    const std::string& label = trial.entry->names.label;
    if (!forecast_.knows(label) && trial.n > 2 * probed) {
      const Stopwatch watch;
      std::vector<T> out;
      const Sketch<T> kept =
          std::exchange(tensors_.sketch, document_sketch(tensors_.first(probed), kSketchWidth));
      const Row row = measure(*trial.entry, tensors_, probed, 1, pool_, out);
      tensors_.sketch = kept;
      forecast_.learn(row, work_of(*trial.entry, run_.shape, probed), watch.seconds());
    }
    return forecast_.knows(label) ? forecast_.pass_seconds(label, trial.work) : 0;
  }

  Comparison& run_;
  HeadTensorsOf<T>& tensors_;
  const OtherRun* other_;
  std::vector<Entry> entries_;
  std::vector<Trial> trials_;
  ThreadPool pool_;
  Progress progress_;
  Forecast forecast_;
  Yardsticks<T> full_;
};

/// Compares in the requested type.
void run_all(Comparison& run, std::vector<Entry> entries, HeadTensors& tensors,
             const OtherRun* other, const std::string& json_file) {
#if !defined(FOVEA_BENCH_FLOAT_ONLY)
  if (run.arguments.type == TensorType::f64) {
    HeadTensorsOf<double> wide = in_double(tensors);
    return Comparer<double>(run, std::move(entries), wide, other).run(json_file);
  }
#endif
  Comparer<float>(run, std::move(entries), tensors, other).run(json_file);
}

/// Refuses what this build has not got. \throws ArgumentError
void check_type(const CompareArguments& arguments) {
#if defined(FOVEA_BENCH_FLOAT_ONLY)
  constexpr bool has_double = false;
#else
  constexpr bool has_double = true;
#endif
#if defined(FOVEA_BENCH_HALF)
  constexpr bool has_half = true;
#else
  constexpr bool has_half = false;
#endif
  const bool is_missing = (arguments.type == TensorType::f64 && !has_double) ||
                          (has_16_bits(arguments.type) && !has_half);
  if (!is_missing) return;
  throw ArgumentError("--dtype: this build of fovea_compare has f32" +
                      std::string(has_half ? ", f16 and bf16" : "") +
                      " alone, so that it is built quickly; cmake/compare.sh builds what --dtype "
                      "asks for, and so do "
                      "-DFOVEA_BENCH_DOUBLE=ON (f64) and -DFOVEA_BENCH_HALF=ON (f16, bf16)");
}

/// Refuses at once what plots and report could not be written to. \throws std::runtime_error
void check_outputs(const std::string& directory) {
  make_directory(directory);
  fovea::check_output(directory + "/report.html");
  check_plots(compare_plots(), directory);
  for (const bool causal : {true, false}) {
    fovea::check_output(directory + "/" + distance_picture({}, causal).file + ".svg");
  }
}

/// Writes plots and report, and tells where they are.
void report(const Comparison& run, const OtherRun* other) {
  const std::string& directory = run.arguments.directory;
  std::vector<SvgPlot> drawn;
  const auto draw = [&](SvgPlot picture) {
    if (picture.series.empty()) return;
    fovea::write_file(directory + "/" + picture.file + ".svg", svg_text(picture));
    drawn.push_back(std::move(picture));
  };
  for (const bool causal : {true, false}) draw(distance_picture(run, causal));
  for (const Plot& plot : compare_plots()) {
    SvgPlot picture = picture_of(run, plot);
    if (other != nullptr) lay_over(picture, *other, plot);
    draw(std::move(picture));
  }
  const std::vector<std::string> faster = overtaking_lines(overtakings(run.rows));
  std::string overtaking = "Faster than full attention: ";
  for (const std::string& line : faster) overtaking += (&line == &faster[0] ? "" : "; ") + line;
  std::vector<std::string> paragraphs;
  if (!faster.empty()) paragraphs.push_back(overtaking + ".");
  if (!run.left_out.empty()) {
    paragraphs.push_back("Omitted, no 16-bit support: " + run.left_out + ".");
  }
  fovea::write_file(directory + "/report.html", html_report(run, drawn, paragraphs));
  std::printf("%s/report.html: which operator, table and plots on one page\n", directory.c_str());
  for (const SvgPlot& plot : drawn) {
    std::printf("%s/%s.svg: %s\n", directory.c_str(), plot.file.c_str(), plot.title.c_str());
  }
}

/// Plots and report of an earlier run.
int draw_again(const CompareArguments& arguments) {
  Comparison run = read_comparison(arguments.drawn_file);
  run.arguments.directory = arguments.directory;
  check_outputs(arguments.directory);
  report(run, nullptr);
  return 0;
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
                 "which lowers its speed accordingly\n",
                 least * 100);
  }
  if (!right) {
    std::fprintf(stderr, "fovea_compare: an operator is wrong: its error is above %.0f units\n",
                 kErrorLimit);
  }
  if (!ran) std::fprintf(stderr, "fovea_compare: an operator could not run: see the table\n");
  return right && ran;
}

/// What the rows say together.
void print_summary(const Comparison& run) {
  const CompareArguments& arguments = run.arguments;
  if (arguments.advise) {
    for (const Index n : arguments.lengths) {
      std::printf("%s%s", n == arguments.lengths[0] ? "" : "\n",
                  advice(run.rows, arguments.causal, n).c_str());
    }
    return;
  }
  std::printf("%s", mask_factors(run.rows).c_str());
  const std::vector<std::string> faster = overtaking_lines(overtakings(run.rows));
  if (!faster.empty()) std::printf("\nfaster than full attention:\n");
  for (const std::string& line : faster) std::printf("  %s\n", line.c_str());
  for (const bool causal : {true, false}) {
    const std::string lines = fastest_lines(run.rows, causal);
    if (!lines.empty()) std::printf("\n%s", lines.c_str());
  }
}

int run_program(int argc, char** argv) {
  Comparison run;
  run.arguments = compare_arguments(argc, argv);
  if (run.arguments.help) return 0;
  if (!run.arguments.drawn_file.empty()) return draw_again(run.arguments);
  run.command.assign(argv, argv + argc);
  run.date = utc_now();
  run.machine = machine_facts();
  check_type(run.arguments);
  std::vector<Entry> entries = entries_of(run.arguments, run.left_out);
  HeadTensors tensors = load(run);
  round_tensors(tensors, run);
  std::optional<OtherRun> other;
  if (!run.arguments.against_file.empty()) other = read_run(run.arguments.against_file);
  const std::string& directory = run.arguments.directory;
  const std::string json_file =
      run.arguments.json_file.empty() ? directory + "/compare.json" : run.arguments.json_file;
  check_outputs(directory);
  fovea::check_output(json_file);

  run.shape = fovea::shape_of(tensors.first(tensors.q_shape[2]));
  for (const auto& [key, value] : run.machine) std::printf("%s: %s\n", key.c_str(), value.c_str());
  std::printf("input: %s\n", run.input.c_str());
  std::printf("%s, threads: %d, type: %s\n", heads_and_width(run.shape).c_str(),
              run.arguments.threads, type_name(run.arguments));
  const std::string left_out =
      run.left_out.empty() ? "" : "omitted, no 16-bit support: " + run.left_out;
  std::printf("%s%s\n", left_out.c_str(), left_out.empty() ? "" : "\n");
  const OtherRun* const beside = other ? &*other : nullptr;
  run_all(run, std::move(entries), tensors, beside, json_file);
  print_summary(run);
  std::printf("\n%s: all numbers\n", json_file.c_str());
  report(run, beside);
  const bool right = judge(run);
  std::printf("took %s\n", human_seconds(run.seconds).c_str());
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return exit_status("fovea_compare", [&] { return run_program(argc, argv); });
}
