// SPDX-License-Identifier: MIT
/// \file
/// Trains small Transformers with different attention on one task, with the same weights to begin
/// with, batches and steps, and draws what they learnt. See --help.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fovea/io/output_file.hpp>
#include <limits>
#include <numeric>
#include <optional>

#include "bench/io/json.hpp"
#include "bench/io/program.hpp"
#include "bench/io/svg_plot.hpp"
#include "bench/learning/learner.hpp"
#include "bench/measure/machine.hpp"
#include "bench/measure/stopwatch.hpp"

namespace {

using learning::Index;
using learning::Point;
using learning::Settings;

/// What is asked for.
struct Asked {
  Settings settings;
  std::vector<std::string> systems = {"full"};
  Index seeds = 3;
  Index report = 0;  ///< steps between two lines
  Index until = 0;   ///< the step after which each run stops
  std::string json, checkpoints, commit;
  std::string drawn, from;  ///< a chart of a file of results
  std::vector<std::string> only;
};

void add_what_learns(program::CommandLine& line, Asked& to) {
  Settings& settings = to.settings;
  line.section("model and task");
  line.add(
      "--task NAME", settings.task,
      "copy (a sequence of ten symbols, twice; causal), list_ops (expressions), or texts (predict "
      "the file of a text)");
  line.add("--texts FILES", settings.texts,
           "one file for each label, separated by commas; texts are separated by lines \"%\", as "
           "in the files of fortune(6); a tenth of the texts is held out");
  line.add_list("--systems LIST", to.systems,
                "separated by commas: full, local:WINDOW, strided:STRIDE, fixed:STRIDE:SUMMARY, "
                "linear:MAPS, fmm:MAPS:BAND, smart_bird:KEYS, fsat:DOMINANT; with other policies "
                "smart_bird_inverse_log, _raw, _top_k and _random; ablations fsat_no_truncation, "
                "fsat_random and fsat_predicted");
  line.add("--length N", settings.length, 1, 1 << 16, "maximum number of tokens of a sequence");
  line.add("--shortest N", settings.shortest, 1, 1 << 16,
           "minimum number of tokens of a sequence, for list_ops (half of --length)");
  line.add("--width C", settings.width, 1, 1 << 14, "channels");
  line.add("--layers K", settings.layers, 1, 1 << 10, "blocks");
  line.add("--heads H", settings.heads, 1, 1 << 10, "heads");
}

void add_how_it_learns(program::CommandLine& line, Asked& to) {
  constexpr Index most = 1 << 30;
  line.section("training");
  line.add("--seeds S", to.seeds, 1, 1000, "runs of each system, from the seeds 0, 1, ...");
  line.add("--steps N", to.settings.steps, 1, most, "steps of Adam");
  line.add("--batch B", to.settings.batch, 1, 1 << 16, "sequences of a step");
  line.add("--held-out N", to.settings.held_out, 1, 1 << 24, "sequences for evaluation");
  line.add("--learning-rate R", to.settings.learning_rate, 0, std::numeric_limits<double>::max(),
           "rate after the warm-up, which takes a tenth of the steps, at most 100; it decays to a "
           "tenth along a cosine");
  line.add("--report N", to.report, 1, most,
           "steps between two lines of output (a twentieth of the steps)");
  line.add("--until N", to.until, 1, most, "stop each run after this step, to continue later");
}

/// Nothing if help was asked for, which is printed. \throws ArgumentError
std::optional<Asked> asked(int argc, const char* const* argv) {
  Asked to;
  program::CommandLine line(
      "fovea_learning",
      "trains small Transformers with the attention of several systems on a task. All have the "
      "same sizes, steps and batches, from each of several seeds. --json FILE trains; --draw FILE "
      "and --from FILE draw the results.");
  add_what_learns(line, to);
  add_how_it_learns(line, to);
  line.section("output");
  line.add("--json FILE", to.json, "the lines of all runs, written after each of them");
  line.add("--checkpoints DIR", to.checkpoints,
           "write a checkpoint of each run at each line; a run with a checkpoint continues from "
           "it, with the same bits as without the interruption");
  line.add("--commit TEXT", to.commit,
           "stored in the JSON file with the machine, the compiler and the flags");
  line.add("--draw FILE", to.drawn,
           "write a chart (SVG) of the loss against the step, means over the seeds");
  line.add("--from FILE", to.from, "the JSON file to draw");
  line.add_list("--only LIST", to.only, "the systems to draw (all)");
  line.footer("Training uses one thread.");
  line.excludes("--draw", {"--json"});
  line.needs("--draw", {"--from"});
  line.needs("--from", {"--draw"});
  if (!line.parse(argc, argv)) return {};
  if (to.json.empty() && to.drawn.empty()) {
    throw program::ArgumentError(
        "expected --json FILE, or --draw FILE and --from FILE; see --help");
  }
  Settings& settings = to.settings;
  if (!line.has("--shortest")) settings.shortest = std::max<Index>(1, settings.length / 2);
  program::check_range<Index>("--shortest", settings.shortest, 1, settings.length);
  if (!line.has("--report")) to.report = std::max<Index>(1, settings.steps / 20);
  if (!line.has("--until")) to.until = settings.steps;
  if (settings.width % settings.heads != 0) {
    throw program::ArgumentError("--heads " + std::to_string(settings.heads) +
                                 " does not divide --width " + std::to_string(settings.width));
  }
  return to;
}

/// One system from one seed.
struct Run {
  Index parameters = 0;
  double seconds = 0;  ///< of the steps that this process took
  Index steps = 0;     ///< that took those
  std::vector<Point> points = {};
};

struct SystemRuns {
  std::string system;
  std::vector<Run> runs = {};
};

std::string checkpoint_of(const std::string& directory, const Settings& settings) {
  std::string name = settings.task + '-' + std::to_string(settings.length) + '-' + settings.system +
                     '-' + std::to_string(settings.seed);
  std::replace(name.begin(), name.end(), ':', '-');
  return directory + '/' + name + ".safetensors";
}

/// Learns up to the last step or --until, and says how it goes.
Run learn(const Settings& settings, const learning::Task& task, const Asked& asked) {
  const auto learner = learning::make_learner(settings, task);
  Run run{learner->parameters()};
  const Index last = std::min(settings.steps, asked.until);
  std::string checkpoint;
  if (!asked.checkpoints.empty()) {
    checkpoint = checkpoint_of(asked.checkpoints, settings);
    if (std::filesystem::exists(checkpoint)) learner->load(checkpoint, run.points);
  }
  double sum = 0;
  Index summed = 0;
  while (learner->step() < last) {
    const bench::Stopwatch watch;
    sum += learner->learn(task);
    run.seconds += watch.seconds();
    ++run.steps;
    ++summed;
    if (learner->step() % asked.report != 0 && learner->step() != last) continue;
    const Point& now = run.points.emplace_back(
        Point{learner->step(), sum / static_cast<double>(summed), learner->evaluate(task)});
    std::printf("%-14s seed %llu  step %6td of %td  loss %.4f, held out %.4f  accuracy %.3f\n",
                settings.system.c_str(), static_cast<unsigned long long>(settings.seed), now.step,
                settings.steps, now.learnt_loss, now.held_out.loss, now.held_out.accuracy);
    std::fflush(stdout);
    sum = 0;
    summed = 0;
    if (!checkpoint.empty()) learner->save(checkpoint, run.points);
  }
  return run;
}

/// The mean, the least and the largest of something of all runs, and all of them.
template <class Of>
void add_spread(bench::Json& json, const std::string& name, const std::vector<Run>& runs,
                const Of& of) {
  std::vector<double> all;
  for (const Run& run : runs) all.push_back(of(run));
  json["mean_" + name] = std::reduce(all.begin(), all.end()) / static_cast<double>(all.size());
  json["least_" + name] = std::ranges::min(all);
  json["most_" + name] = std::ranges::max(all);
  json[name + "_of_seeds"] = all;
}

/// The lines that all runs have.
bench::Json points_of(const std::vector<Run>& runs) {
  std::size_t common = runs[0].points.size();
  for (const Run& run : runs) common = std::min(common, run.points.size());
  bench::Json points = bench::Json::array();
  for (std::size_t i = 0; i < common; ++i) {
    double loss = 0, accuracy = 0;
    for (const Run& run : runs) {
      loss += run.points[i].held_out.loss / static_cast<double>(runs.size());
      accuracy += run.points[i].held_out.accuracy / static_cast<double>(runs.size());
    }
    points.push_back(
        {{"step", runs[0].points[i].step}, {"mean_loss", loss}, {"mean_accuracy", accuracy}});
  }
  return points;
}

/// Below the titles of plots, and in the JSON, from which captions in documents are made.
constexpr const char* kCaption = "sequences held out, mean over the seeds";

std::string json_of(const Settings& settings, const std::string& commit,
                    const std::vector<std::string>& command, const std::vector<SystemRuns>& all) {
  bench::Json json = bench::facts("fovea_learning", command, bench::machine_facts());
  json["commit"] = commit;
  json["task"] = settings.task;
  if (!settings.texts.empty()) json["texts"] = settings.texts;
  json.update({{"shortest", settings.shortest},
               {"length", settings.length},
               {"width", settings.width},
               {"layers", settings.layers},
               {"heads", settings.heads},
               {"steps", settings.steps},
               {"batch", settings.batch},
               {"held_out", settings.held_out},
               {"learning_rate", settings.learning_rate},
               {"caption", kCaption},
               {"what", "loss in nats per answer and accuracy, on held-out sequences"}});
  for (const auto& [name, runs] : all) {
    bench::Json& system = json["systems"].emplace_back();
    system["system"] = name;
    system["parameters"] = runs[0].parameters;
    system["seeds"] = runs.size();
    system["step"] = runs[0].points.back().step;
    add_spread(system, "loss", runs,
               [](const Run& run) { return run.points.back().held_out.loss; });
    add_spread(system, "accuracy", runs,
               [](const Run& run) { return run.points.back().held_out.accuracy; });
    system["points"] = points_of(runs);
  }
  return bench::text_of(json);
}

void learn_all(const Asked& asked, const std::vector<std::string>& command) {
  Settings settings = asked.settings;
  const auto task = learning::make_task(settings);
  // What is refused is refused before hours are spent.
  for (const std::string& system : asked.systems) {
    settings.system = system;
    learning::make_learner(settings, *task);
  }
  fovea::check_output(asked.json);
  if (!asked.checkpoints.empty()) bench::make_directory(asked.checkpoints);
  std::vector<SystemRuns> all;
  for (const std::string& system : asked.systems) {
    settings.system = system;
    all.push_back({system});
    double seconds = 0;
    Index steps = 0;
    for (Index seed = 0; seed < asked.seeds; ++seed) {
      settings.seed = static_cast<std::uint64_t>(seed);
      const Run& run = all.back().runs.emplace_back(learn(settings, *task, asked));
      seconds += run.seconds;
      steps += run.steps;
      fovea::write_file(asked.json, json_of(settings, asked.commit, command, all));
    }
    std::printf("%-14s %td weights, %td steps in %.1f s\n", system.c_str(),
                all.back().runs[0].parameters, steps, seconds);
  }
}

/// What the numbers in the names of these systems are: "linear:MAPS, fmm:MAPS:BAND".
std::string forms_of(const std::vector<bench::PlotSeries>& lines) {
  std::string forms;
  for (std::string form : program::parts_of("", learning::known_systems())) {
    form = form.substr(form.find_first_not_of(' '));
    form = form.substr(0, form.find(' '));
    const bool is_shown = std::ranges::any_of(lines, [&](const bench::PlotSeries& line) {
      return line.system.starts_with(learning::name_of(form));
    });
    if (is_shown) forms += (forms.empty() ? "" : ", ") + form;
  }
  return forms;
}

/// The mean loss against the step, in the colours that systems have everywhere.
bench::SvgPlot plot_of(const bench::Json& json, const std::vector<std::string>& only) {
  bench::SvgPlot plot;
  const std::string task = json.at("task");
  plot.title = "Loss against the training step: " + task +
               (task == "copy" ? ", causal" : ", not causal") + ", length " +
               std::to_string(json.at("length").get<Index>());
  plot.subtitle = kCaption;
  plot.x.label = "training step";
  plot.y.label = "loss, nats of an answer";
  for (const bench::Json& system : json.at("systems")) {
    const std::string name = system.at("system");
    if (!only.empty() && std::ranges::find(only, name) == only.end()) continue;
    bench::PlotSeries& series = bench::line_of(plot.series, name, learning::name_of(name));
    for (const bench::Json& point : system.at("points")) {
      series.points.emplace_back(point.at("step"), point.at("mean_loss"));
    }
  }
  plot.line = "an attention: " + forms_of(plot.series);
  return plot;
}

void draw(const Asked& asked) {
  fovea::check_output(asked.drawn);
  const bench::SvgPlot plot =
      bench::read_result(asked.from, "fovea_learning",
                         [&](const bench::Json& json) { return plot_of(json, asked.only); });
  fovea::write_file(asked.drawn, bench::svg_text(plot));
}

}  // namespace

int main(int argc, char** argv) {
  return program::exit_status("fovea_learning", [&] {
    const auto to_do = asked(argc, argv);
    if (to_do && !to_do->drawn.empty()) {
      draw(*to_do);
    } else if (to_do) {
      learn_all(*to_do, {argv, argv + argc});
    }
    return 0;
  });
}
