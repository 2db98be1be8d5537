// SPDX-License-Identifier: MIT
/// \file
/// A small Transformer that learns a task, whatever its attention is: what the program calls, and
/// what learner_*.cpp build, a few systems each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/learning/task.hpp"

namespace learning {

/// The settings of a model and its training.
struct Settings {
  std::string task = "copy";
  std::string texts = {};       ///< files of labelled texts, with commas
  std::string system = "full";  ///< a name, then numbers behind colons: fmm:1:10
  Index shortest = 0;           ///< tokens of a sequence at least, for list_ops
  Index length = 128;           ///< tokens of a sequence at most
  Index width = 64, layers = 2, heads = 4;
  Index steps = 500;            ///< in all
  Index batch = 16;             ///< sequences of a step
  Index held_out = 64;          ///< sequences that are not learnt
  double learning_rate = 2e-3;  ///< after the warm-up
  std::uint64_t seed = 0;       ///< of weights and batches

  /// All of it, for a checkpoint to be compared with.
  std::string text() const;
};

/// How good a model is on sequences that it does not learn from.
struct Score {
  double loss = 0;      ///< nats of an answer
  double accuracy = 0;  ///< share of right answers
};

/// A line of the report.
struct Point {
  Index step = 0;
  double learnt_loss = 0;  ///< mean over the steps since the last line
  Score held_out;
};

/// A model that learns.
class Learner {
 public:
  virtual ~Learner() = default;
  /// The number of weights.
  virtual Index parameters() const = 0;
  /// The number of steps that it has learnt for.
  virtual Index step() const = 0;
  /// Learns for a step. \return the loss of the batch
  virtual double learn(const Task& task) = 0;
  virtual Score evaluate(const Task& task) = 0;
  /// Writes all that learning goes on from, and the lines so far. \throws std::runtime_error
  virtual void save(const std::string& path, const std::vector<Point>& points) = 0;
  /// Goes on from there. \throws std::runtime_error, also if the settings were others
  virtual void load(const std::string& path, std::vector<Point>& points) = 0;
};

/// \throws std::invalid_argument for a task that is not known, or lengths that it has not
/// \throws std::runtime_error for files that cannot be read
std::unique_ptr<Task> make_task(const Settings& settings);
/// The systems' names, for people.
std::string known_systems();
/// \throws std::invalid_argument for a system that is unknown, or does not support the task
std::unique_ptr<Learner> make_learner(const Settings& settings, const Task& task);

/// A system's name without its numbers.
inline std::string name_of(const std::string& system) { return system.substr(0, system.find(':')); }
/// The numbers of a system's name, or these; none of them is below 1.
/// \throws std::invalid_argument if there are more, or one is no such number
std::vector<Index> numbers_of(const std::string& system, std::vector<Index> otherwise);

// What each source builds; null for a system of another one.
using MakeLearner = std::unique_ptr<Learner>(const Settings& settings, const Task& task);
MakeLearner make_softmax_learner, make_far_learner, make_sketch_learner, make_fsat_learner;

}  // namespace learning
