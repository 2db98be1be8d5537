// SPDX-License-Identifier: MIT
/// \file
/// Trains a small language model of bytes with the attention of one or several operators, and
/// continues texts. See --help.
#include <chrono>
#include <fovea/io/output_file.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "../command_line.hpp"
#include "../line_chart.hpp"
#include "byte_learner.hpp"
#include "cannot_decode.hpp"

namespace {

using fovea::Index;
using models::ByteLearner;
using models::ByteSettings;
using program::ArgumentError;
using program::CommandLine;

/// What is asked for.
struct Asked {
  ByteSettings settings;
  std::vector<std::string> operators = {"full"};
  std::string text;
  Index until = -1;  ///< the step after which it stops; -1: the last one
  Index report = 0;  ///< steps between two lines
  int threads = 0;   ///< 0: those of the machine
  std::string save, load, json, plot, prompt;
  Index count = -1;  ///< of bytes that are generated; -1: nothing is
  models::Sampling sampling;
};

void add_what_learns(CommandLine& line, Asked& to) {
  line.section("what learns");
  line.add("--text FILE", to.text, "the text; the last tenth is not learnt, but guessed");
  line.add_list(
      "--operator LIST", to.operators,
      "full, local, strided, fixed, bigbird, linear, delta, fmm, smart_bird; several with "
      "commas learn in turn, from the same seed");
  line.add("--length N", to.settings.length, 1, 1 << 20, "bytes of a sequence");
  line.add("--width C", to.settings.width, 1, 1 << 14, "channels");
  line.add("--layers K", to.settings.layers, 0, 1 << 10, "blocks");
  line.add("--heads H", to.settings.heads, 1, 1 << 10, "heads of a block");
  line.add("--seed S", to.settings.seed, 0, std::uint64_t{1} << 62,
           "of weights, batches and draws");
}

void add_how_it_learns(CommandLine& line, Asked& to) {
  constexpr Index most = 1 << 30;
  line.section("how it learns");
  line.add("--steps N", to.settings.steps, 0, most, "steps of Adam in all");
  line.add("--until S", to.until, 0, most, "stop after step S of them, to go on by --load (all)");
  line.add("--batch B", to.settings.batch, 1, 1 << 16, "sequences of a step");
  line.add("--learning-rate R", to.settings.learning_rate, 0, std::numeric_limits<double>::max(),
           "after the warm-up, which is a tenth of the steps, at most 100; it falls along a cosine "
           "to a tenth");
  line.add("--report R", to.report, 1, most, "steps between two lines (a twentieth of the steps)");
  line.add("--threads T", to.threads, 1, 1024,
           "threads (those of the machine); they change no bit");
}

void add_output(CommandLine& line, Asked& to) {
  line.section("checkpoints and output");
  line.add("--save FILE", to.save, "writes a checkpoint at each line and at the end");
  line.add("--load FILE", to.load,
           "goes on from one, with the same bits as without the interruption; what the model is "
           "stands in it, and --steps may be more");
  line.add("--json FILE", to.json, "losses of all operators");
  line.add("--plot FILE", to.plot, "the same as a chart (SVG)");
  line.add("--generate N", to.count, 0, Index{1} << 40,
           "writes N bytes to stdout after all, behind the prompt");
  line.add_any("--prompt TEXT", to.prompt, "what they continue (an end of a line)");
  line.add("--temperature T", to.sampling.temperature, 0, std::numeric_limits<double>::max(),
           "of the draws; 0 takes the likeliest byte");
  line.add("--top-k K", to.sampling.top_k, 1, 256, "draws from the K likeliest");
}

/// Refuses operators and sizes that it has no model for. \throws ArgumentError
void check_model(const Asked& to) {
  const auto known = models::byte_operators();
  for (const std::string& op : to.operators) {
    if (std::find(known.begin(), known.end(), op) != known.end()) continue;
    throw ArgumentError(
        "--operator " + op + ": " +
        (models::cannot_decode(op) ? models::kCannotDecode : "it is not known; see --help"));
  }
  if (to.settings.width % to.settings.heads != 0) {
    throw ArgumentError("--heads " + std::to_string(to.settings.heads) +
                        " does not divide --width " + std::to_string(to.settings.width));
  }
}

/// Nothing if help was asked for, which is printed. \throws ArgumentError
std::optional<Asked> asked(int argc, const char* const* argv) {
  Asked to;
  CommandLine line(
      "byte_model",
      "a language model of bytes, with the attention that you choose. With --text FILE "
      "it learns; with --load FILE and --generate N it continues a text.");
  add_what_learns(line, to);
  add_how_it_learns(line, to);
  add_output(line, to);
  line.excludes("--load", {"--operator", "--length", "--width", "--layers", "--heads", "--batch",
                           "--learning-rate", "--seed"});
  for (const char* option : {"--steps", "--until", "--report", "--save", "--json", "--plot"}) {
    line.needs(option, {"--text"});
  }
  for (const char* option : {"--prompt", "--temperature", "--top-k"}) {
    line.needs(option, {"--generate"});
  }
  if (!line.parse(argc, argv)) return {};
  if (to.text.empty() && (to.load.empty() || to.count < 0)) {
    throw ArgumentError("expected --text FILE, or --load FILE --generate N; see --help");
  }
  check_model(to);
  for (const char* option : {"--save", "--generate"}) {
    if (line.has(option) && to.operators.size() > 1) {
      throw ArgumentError(std::string(option) + " is of one model: expected one --operator");
    }
  }
  if (!to.load.empty() && !line.has("--steps")) to.settings.steps = 0;  // those of the file
  to.sampling.seed = to.settings.seed;
  return to;
}

/// A line of the report.
struct Loss {
  Index step;
  double train, validation;
};

/// What an operator learnt.
struct Course {
  std::string op;
  Index parameters = 0;
  double bytes_per_second = 0;
  std::vector<Loss> losses = {};
};

/// Learns up to a step, and says how it goes.
Course learn(ByteLearner& learner, const ByteSettings& settings, const models::ByteText& text,
             const Asked& asked, const fovea::ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  Course course{settings.op, learner.parameters()};
  const Index every = asked.report > 0 ? asked.report : std::max<Index>(1, settings.steps / 20);
  const Index last = asked.until < 0 ? settings.steps : std::min(settings.steps, asked.until);
  Clock::duration busy{};
  Index steps = 0;
  double sum = 0;
  Index summed = 0;
  while (learner.step() < last) {
    const auto start = Clock::now();
    sum += learner.learn(text, pool);
    busy += Clock::now() - start;
    ++steps;
    ++summed;
    if (learner.step() % every != 0 && learner.step() != last) continue;
    const double seconds = std::max(1e-9, std::chrono::duration<double>(busy).count());
    const Loss loss{learner.step(), sum / static_cast<double>(summed),
                    learner.validate(text, pool)};
    course.bytes_per_second =
        static_cast<double>(steps * settings.batch * settings.length) / seconds;
    std::fprintf(
        stderr,
        "%-10s step %6td of %td  bits per byte: training %.4f, held out %.4f  %.0f tokens/s\n",
        settings.op.c_str(), loss.step, settings.steps, loss.train, loss.validation,
        course.bytes_per_second);
    course.losses.push_back(loss);
    sum = 0;
    summed = 0;
    if (!asked.save.empty()) learner.save(asked.save);
  }
  if (steps == 0 && !asked.save.empty()) learner.save(asked.save);
  return course;
}

void write_json(const std::string& path, const ByteSettings& settings, double unigram_bits,
                const std::vector<Course>& courses) {
  nlohmann::json all = {{"program", "byte_model"},
                        {"length", settings.length},
                        {"width", settings.width},
                        {"layers", settings.layers},
                        {"heads", settings.heads},
                        {"steps", settings.steps},
                        {"batch", settings.batch},
                        {"learning_rate", settings.learning_rate},
                        {"seed", settings.seed},
                        {"unigram_bits_per_byte", unigram_bits},
                        {"operators", nlohmann::json::array()}};
  for (const Course& course : courses) {
    nlohmann::json losses = nlohmann::json::array();
    for (const Loss& loss : course.losses) {
      losses.push_back({{"step", loss.step},
                        {"bits_per_learnt_byte", loss.train},
                        {"bits_per_byte", loss.validation}});
    }
    all["operators"].push_back({{"operator", course.op},
                                {"parameters", course.parameters},
                                {"tokens_per_second", course.bytes_per_second},
                                {"losses", losses}});
  }
  fovea::write_file(path, all.dump(1) + "\n");
}

void write_plot(const std::string& path, double unigram_bits, const std::vector<Course>& courses) {
  constexpr const char* colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9",
                                     "#E69F00", "#000000", "#999999", "#8B5A2B"};
  drawing::Chart validation{"Bits per byte of text that is held out", "training step", {}, 8, 8};
  drawing::Line unigrams{"how often each byte is", "#bbbbbb", {}};
  for (std::size_t i = 0; i < courses.size(); ++i) {
    drawing::Line line{courses[i].op, colours[i % std::size(colours)], {}};
    for (const Loss& loss : courses[i].losses) {
      line.points.emplace_back(static_cast<double>(loss.step), std::min(8.0, loss.validation));
    }
    validation.lines.push_back(line);
  }
  for (const Loss& loss : courses.front().losses) {
    unigrams.points.emplace_back(static_cast<double>(loss.step), unigram_bits);
  }
  validation.lines.push_back(unigrams);
  if (!drawing::write_charts(path, {validation})) {
    throw std::runtime_error(path + ": cannot be written");
  }
}

void run(const Asked& asked) {
  for (const std::string& path : {asked.save, asked.json, asked.plot}) {
    if (!path.empty()) fovea::check_output(path);
  }
  const fovea::ThreadPool pool(asked.threads == 0 ? fovea::default_concurrency() : asked.threads);
  ByteSettings settings = asked.settings;
  std::unique_ptr<ByteLearner> learner;
  if (!asked.load.empty()) learner = models::load_byte_learner(asked.load, settings);
  if (std::ssize(asked.prompt) > settings.length) {
    throw std::runtime_error("the prompt has " + std::to_string(asked.prompt.size()) +
                             " bytes; the model has positions for " +
                             std::to_string(settings.length));
  }
  if (!asked.text.empty()) {
    const models::ByteText text(asked.text, settings.length);
    const double unigram_bits = text.unigram_bits();
    std::fprintf(stderr, "%td bytes, %td of them for training; byte frequencies give %.4f bits\n",
                 text.size(), text.train_size(), unigram_bits);
    std::vector<Course> courses;
    for (const std::string& op : asked.operators) {
      if (asked.load.empty()) {
        settings.op = op;
        learner = models::make_byte_learner(settings);
      }
      courses.push_back(learn(*learner, settings, text, asked, pool));
    }
    if (!asked.json.empty()) write_json(asked.json, settings, unigram_bits, courses);
    if (!asked.plot.empty()) write_plot(asked.plot, unigram_bits, courses);
  }
  if (asked.count < 0) return;
  const std::string made =
      asked.prompt + learner->generate(asked.prompt, asked.count, asked.sampling, pool) + "\n";
  std::fwrite(made.data(), 1, made.size(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  return program::exit_status("byte_model", [&] {
    if (const auto to_do = asked(argc, argv)) run(*to_do);
    return 0;
  });
}
