// SPDX-License-Identifier: MIT
/// \file
/// Trains a small language model of bytes with the attention of one or several operators, and
/// continues texts. See --help.
#include <array>
#include <chrono>
#include <fovea/io/output_file.hpp>
#include <nlohmann/json.hpp>

#include "../line_chart.hpp"
#include "byte_learner.hpp"
#include "cannot_decode.hpp"
#include "command_line.hpp"

namespace {

using fovea::Index;
using models::ByteLearner;
using models::ByteSettings;

constexpr const char* kHelp =
    R"(byte_model: a language model of bytes, with the attention that you choose.

usage: byte_model --text FILE [options]                learns
       byte_model --load FILE --generate N [options]   continues a text

what learns
  --text FILE        the text; the last tenth is not learnt, but guessed
  --operator LIST    full, local, strided, fixed, bigbird, linear, delta, fmm, smart_bird; several
                     with commas learn in turn, from the same seed   (full)
  --length N         bytes of a sequence             (256)
  --width C          channels                        (64)
  --layers K         blocks                          (2)
  --heads H          heads of a block                (4)
  --seed S           of weights, batches and draws   (1)

how it learns
  --steps N          steps of Adam in all            (500)
  --until S          stop after step S of them, to go on by --load
  --batch B          sequences of a step             (8)
  --learning-rate R  after the warm-up, which is a tenth of the steps, at most 100; it falls along a
                     cosine to a tenth               (0.002)
  --report R         steps between two lines         (a twentieth of the steps)
  --threads T        threads (those of the machine); they change no bit

checkpoints and output
  --save FILE        writes a checkpoint at each line and at the end
  --load FILE        goes on from one, with the same bits as without the interruption; what the model
                     is stands in it, and --steps may be more
  --json FILE        losses of all operators
  --plot FILE        the same as a chart (SVG)
  --generate N       writes N bytes to stdout after all, behind the prompt
  --prompt TEXT      what they continue              (an end of a line)
  --temperature T    of the draws; 0 takes the likeliest byte   (1)
  --top-k K          draws from the K likeliest      (256)
  --help             this text
)";

constexpr std::array<std::string_view, 21> kFlags = {
    "--text",  "--operator", "--length", "--width",         "--layers", "--heads",       "--seed",
    "--steps", "--until",    "--batch",  "--learning-rate", "--report", "--threads",     "--save",
    "--load",  "--json",     "--plot",   "--generate",      "--prompt", "--temperature", "--top-k"};

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

std::vector<std::string> operators_of(const std::string& list) {
  std::vector<std::string> parts = models::parts_of(list);
  const auto known = models::byte_operators();
  for (const std::string& part : parts) {
    if (std::find(known.begin(), known.end(), part) != known.end()) continue;
    throw std::runtime_error(
        "--operator " + part + ": " +
        (models::cannot_decode(part) ? models::kCannotDecode : "it is not known; see --help"));
  }
  return parts;
}

ByteSettings settings_of(const models::CommandLine& line) {
  const ByteSettings usual;
  ByteSettings settings;
  settings.length = line.number("--length", usual.length, 1, 1 << 20);
  settings.width = line.number("--width", usual.width, 1, 1 << 14);
  settings.layers = line.number("--layers", usual.layers, 0, 1 << 10);
  settings.heads = line.number("--heads", usual.heads, 1, 1 << 10);
  settings.steps = line.number("--steps", usual.steps, 0, 1 << 30);
  settings.batch = line.number("--batch", usual.batch, 1, 1 << 16);
  settings.learning_rate = line.real("--learning-rate", usual.learning_rate, 0);
  settings.seed = static_cast<std::uint64_t>(line.number("--seed", 1, 0, Index{1} << 62));
  if (settings.width % settings.heads != 0) {
    throw std::runtime_error("--heads " + std::to_string(settings.heads) +
                             " does not divide --width " + std::to_string(settings.width));
  }
  return settings;
}

/// Learns up to a step, and says how it goes.
Course learn(ByteLearner& learner, const ByteSettings& settings, const models::ByteText& text,
             const models::CommandLine& line, const fovea::ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  Course course{settings.op, learner.parameters()};
  const Index every =
      line.number("--report", std::max<Index>(1, settings.steps / 20), 1, Index{1} << 30);
  const Index last = std::min(settings.steps, line.number("--until", settings.steps, 0, 1 << 30));
  const std::string save = line.text("--save");
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
    if (!save.empty()) learner.save(save);
  }
  if (steps == 0 && !save.empty()) learner.save(save);
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

/// Refuses flags that say nothing together.
void check_flags(const models::CommandLine& line, bool is_one) {
  const auto refuse_beside = [&](const char* flag, const char* other) {
    if (!line.has(flag) || !line.has(other)) return;
    throw std::runtime_error(std::string(flag) + " says nothing beside " + other +
                             "; leave one out");
  };
  for (const char* flag : {"--operator", "--length", "--width", "--layers", "--heads", "--batch",
                           "--learning-rate", "--seed"}) {
    refuse_beside(flag, "--load");
  }
  if (!line.has("--text") && !(line.has("--load") && line.has("--generate"))) {
    throw std::runtime_error("expected --text FILE, or --load FILE --generate N; see --help");
  }
  for (const char* flag : {"--steps", "--until", "--report", "--save", "--json", "--plot"}) {
    if (line.has(flag) && !line.has("--text")) {
      throw std::runtime_error(std::string(flag) + " says nothing without --text");
    }
  }
  for (const char* flag : {"--save", "--generate"}) {
    if (line.has(flag) && !is_one) {
      throw std::runtime_error(std::string(flag) + " is of one model: expected one --operator");
    }
  }
  for (const char* flag : {"--prompt", "--temperature", "--top-k"}) {
    if (line.has(flag) && !line.has("--generate")) {
      throw std::runtime_error(std::string(flag) + " says nothing without --generate");
    }
  }
}

void run(const models::CommandLine& line) {
  const std::vector<std::string> operators = operators_of(line.text("--operator", "full"));
  check_flags(line, operators.size() == 1);
  ByteSettings settings = settings_of(line);
  const Index count = line.number("--generate", 0, 0, Index{1} << 40);
  const models::Sampling sampling{.temperature = line.real("--temperature", 1, 0),
                                  .top_k = line.number("--top-k", 256, 1, 256),
                                  .seed = settings.seed};
  const auto threads = static_cast<int>(line.number("--threads", 0, 1, 1024));
  for (const char* flag : {"--save", "--json", "--plot"}) {
    if (line.has(flag)) fovea::check_output(line.text(flag));
  }
  const fovea::ThreadPool pool(threads == 0 ? fovea::default_concurrency() : threads);
  std::unique_ptr<ByteLearner> learner;
  if (line.has("--load")) {
    if (!line.has("--steps")) settings.steps = 0;  // those of the file
    learner = models::load_byte_learner(line.text("--load"), settings);
  }
  const std::string prompt = line.any_text("--prompt");
  if (std::ssize(prompt) > settings.length) {
    throw std::runtime_error("the prompt has " + std::to_string(prompt.size()) +
                             " bytes; the model has positions for " +
                             std::to_string(settings.length));
  }
  if (line.has("--text")) {
    const models::ByteText text(line.text("--text"), settings.length);
    const double unigram_bits = text.unigram_bits();
    std::fprintf(stderr, "%td bytes, %td of them for training; byte frequencies give %.4f bits\n",
                 text.size(), text.train_size(), unigram_bits);
    std::vector<Course> courses;
    for (const std::string& op : operators) {
      if (!line.has("--load")) {
        settings.op = op;
        learner = models::make_byte_learner(settings);
      }
      courses.push_back(learn(*learner, settings, text, line, pool));
    }
    if (line.has("--json")) write_json(line.text("--json"), settings, unigram_bits, courses);
    if (line.has("--plot")) write_plot(line.text("--plot"), unigram_bits, courses);
  }
  if (!line.has("--generate")) return;
  const std::string made = prompt + learner->generate(prompt, count, sampling, pool) + "\n";
  std::fwrite(made.data(), 1, made.size(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  return models::exit_status("byte_model", [&] {
    const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
    const models::CommandLine line(arguments.subspan(argc > 0 ? 1 : 0), kFlags, false);
    if (line.help()) {
      std::fputs(kHelp, stdout);
    } else {
      run(line);
    }
  });
}
