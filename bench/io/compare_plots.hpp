// SPDX-License-Identifier: MIT
/// \file
/// Time and memory against N. Test: tests/bench/io/compare_plots_test.cpp.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/compare_json.hpp"
#include "bench/io/svg_plot.hpp"
#include "fovea/io/output_file.hpp"

namespace bench {

/// One quantity against N.
struct Plot {
  std::string file;  ///< without extension
  std::string title;
  std::string y_label;
  double (*value)(const Row&);
  bool binary_units;  ///< y is bytes
  bool forward;       ///< of forward passes; otherwise of the others

  bool shows(const Row& row) const {
    const Pass pass = row.names.pass;
    return row.skipped.empty() && forward == (pass == Pass::forward || pass == Pass::dense_mask);
  }
};

/// Those of fovea_compare.
inline std::vector<Plot> compare_plots() {
  const auto time = [](const Row& row) { return row.seconds * 1e3; };
  const auto memory = [](const Row& row) { return static_cast<double>(row.workspace_bytes); };
  return {{"time", "Time of one forward pass", "milliseconds", time, false, true},
          {"memory", "Memory of one forward pass", "bytes beside inputs and output", memory, true,
           true},
          {"time_steps", "Time of a training step, and of decoding one token", "milliseconds", time,
           false, false},
          {"memory_steps", "Memory of a training step, and of a decoder with its cache",
           "bytes beside inputs and output", memory, true, false}};
}

/// "8 heads, D = 64, float32, 1 thread, level v4, <processor>".
inline std::string subtitle_of(const Comparison& run) {
  return heads_and_width(run.shape) + ", " + type_name(run.arguments) + ", " +
         std::to_string(run.arguments.threads) +
         (run.arguments.threads == 1 ? " thread, level " : " threads, level ") +
         fovea::name(fovea::isa_level()) + ", " + cpu_name();
}

/// A line for each label, in the order of the table. A further variant of a system is dashed, and
/// so is decoding.
inline std::vector<PlotSeries> series_of(const std::vector<Row>& rows, const Plot& plot) {
  std::vector<PlotSeries> lines;
  std::set<std::string> systems;
  for (const Row& row : rows) {
    if (!plot.shows(row)) continue;
    auto line = std::ranges::find(lines, row.names.label, &PlotSeries::label);
    if (line == lines.end()) {
      const bool is_first = systems.insert(row.names.op).second;
      const bool is_dashed = !is_first || row.names.pass == Pass::decode;
      lines.push_back({row.names.label, row.names.op, {}, is_dashed});
      line = lines.end() - 1;
    }
    line->points.emplace_back(static_cast<double>(row.n), plot.value(row));
  }
  return lines;
}

/// The picture of a plot, without a line if no row belongs there.
inline SvgPlot picture_of(const Comparison& run, const Plot& plot) {
  SvgPlot picture{plot.file,
                  plot.title,
                  subtitle_of(run),
                  {.label = "sequence length N"},
                  {plot.y_label, plot.binary_units},
                  series_of(run.rows, plot)};
  for (const Index n : run.arguments.lengths) picture.x.ticks.push_back(static_cast<double>(n));
  return picture;
}

/// Refuses at once the files that plots could not be written to. \throws std::runtime_error
inline void check_plots(const std::vector<Plot>& plots, const std::string& directory) {
  for (const Plot& plot : plots) fovea::check_output(directory + "/" + plot.file + ".svg");
}

/// Writes <directory>/<file>.svg of every plot that has a line; returns those.
/// \throws std::runtime_error
inline std::vector<SvgPlot> draw_plots(const Comparison& run, const std::vector<Plot>& plots,
                                       const std::string& directory) {
  std::vector<SvgPlot> drawn;
  for (const Plot& plot : plots) {
    SvgPlot picture = picture_of(run, plot);
    if (picture.series.empty()) continue;
    fovea::write_file(directory + "/" + plot.file + ".svg", svg_text(picture));
    drawn.push_back(std::move(picture));
  }
  return drawn;
}

}  // namespace bench
