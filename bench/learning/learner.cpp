// SPDX-License-Identifier: MIT
// What all learners share: their settings as a text, and how a system is found by its name.
#include "bench/learning/learner.hpp"

#include <charconv>
#include <cstdio>
#include <sstream>

#include "bench/learning/labelled_texts.hpp"

namespace learning {

std::string Settings::text() const {
  char numbers[400];
  std::snprintf(numbers, sizeof numbers,
                " tokens %td to %td, width %td, layers %td, heads %td, steps %td, batch %td, held "
                "out %td, rate %.17g, seed %llu",
                shortest, length, width, layers, heads, steps, batch, held_out, learning_rate,
                static_cast<unsigned long long>(seed));
  return task + " " + (texts.empty() ? "" : texts + " ") + system + numbers;
}

std::unique_ptr<Task> make_task(const Settings& settings) {
  if (settings.task == "copy") return std::make_unique<CopyTask>(settings.length);
  if (settings.task == "list_ops") {
    return std::make_unique<ListOpsTask>(settings.shortest, settings.length);
  }
  if (settings.task == "texts") {
    std::vector<std::string> files;
    std::istringstream list(settings.texts);
    for (std::string file; std::getline(list, file, ',');) files.push_back(file);
    return std::make_unique<LabelledTexts>(files, settings.length);
  }
  throw std::invalid_argument("--task '" + settings.task + "' is none of copy, list_ops, texts");
}

std::string known_systems() {
  return "full, local:WINDOW, strided:STRIDE, fixed:STRIDE:SUMMARY, linear:MAPS, fmm:MAPS:BAND, "
         "smart_bird:KEYS, fsat:DOMINANT (with _inverse_log, _raw, _top_k or _random behind "
         "smart_bird, and _no_truncation, _random or _predicted behind fsat)";
}

std::vector<Index> numbers_of(const std::string& system, std::vector<Index> otherwise) {
  std::size_t at = system.find(':');
  for (Index& number : otherwise) {
    if (at == system.npos) break;
    const char* const begin = system.data() + at + 1;
    at = system.find(':', at + 1);
    const char* const stop = system.data() + std::min(at, system.size());
    const auto [end, error] = std::from_chars(begin, stop, number);
    if (error != std::errc{} || end != stop || number < 1 || number > (Index{1} << 30)) {
      throw std::invalid_argument("--systems '" + system + "': '" + std::string(begin, stop) +
                                  "' is not a whole number of at least 1");
    }
  }
  if (at != system.npos) {
    throw std::invalid_argument("--systems '" + system + "': it has too many numbers");
  }
  return otherwise;
}

std::unique_ptr<Learner> make_learner(const Settings& settings, const Task& task) {
  for (MakeLearner* const make :
       {make_softmax_learner, make_far_learner, make_sketch_learner, make_fsat_learner}) {
    if (auto learner = make(settings, task)) return learner;
  }
  throw std::invalid_argument("--systems '" + settings.system + "' is none of " + known_systems());
}

}  // namespace learning
