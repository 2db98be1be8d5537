// SPDX-License-Identifier: MIT
/// \file
/// A program whose rows are a JSON file and plots, which can be drawn again from that file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/io/compare_plots.hpp"
#include "bench/io/program.hpp"
#include "bench/measure/machine.hpp"
#include "bench/measure/stopwatch.hpp"

namespace bench {

struct TableProgram {
  std::string name;  ///< "fovea_lengths": its results are lengths.json
  std::vector<Plot> plots;
  std::function<bool(Comparison&)> measure;  ///< fills the rows; whether all of them are right
  std::string (*json)(const Comparison&);
};

/// Measures, or draws again. \return the exit status   \throws std::runtime_error
inline int run_table(const TableProgram& program, const CompareArguments& arguments,
                     std::vector<std::string> command) {
  if (arguments.help) return 0;
  const std::string& directory = arguments.directory;
  make_directory(directory);
  if (!arguments.drawn_file.empty()) {
    draw_plots(read_comparison(arguments.drawn_file, program.name), program.plots, directory);
    return 0;
  }
  Comparison run;
  run.arguments = arguments;
  run.command = std::move(command);
  run.machine = machine_facts();
  const std::string json_file =
      directory + "/" + program.name.substr(program.name.find('_') + 1) + ".json";
  fovea::check_output(json_file);
  check_plots(program.plots, directory);
  const Stopwatch total;
  const bool are_right = program.measure(run);
  run.seconds = total.seconds();
  fovea::write_file(json_file, program.json(run));
  draw_plots(run, program.plots, directory);
  return are_right ? 0 : 1;
}

}  // namespace bench
