// SPDX-License-Identifier: MIT
/// \file
/// Time and memory against N, and distance against time. Test:
/// tests/bench/io/compare_plots_test.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/compare_json.hpp"
#include "bench/io/svg_plot.hpp"
#include "bench/measure/selection.hpp"
#include "fovea/io/output_file.hpp"

namespace bench {

/// The passes that are in a plot together.
enum class PlotPasses { forward, training, decode };

/// One quantity against N.
struct Plot {
  std::string file;  ///< without extension
  std::string title;
  std::string y_label;
  double (*value)(const Row&);
  bool binary_units;  ///< y is bytes
  PlotPasses passes;
  bool causal;

  bool shows(const Row& row) const {
    const Pass pass = row.names.pass;
    const PlotPasses of_row = pass == Pass::decode     ? PlotPasses::decode
                              : pass == Pass::training ? PlotPasses::training
                                                       : PlotPasses::forward;
    return row.skipped.empty() && of_row == passes && row.causal == causal;
  }
};

inline double milliseconds_of(const Row& row) { return row.seconds * 1e3; }
inline double bytes_of(const Row& row) { return static_cast<double>(row.workspace_bytes); }

/// Those of fovea_compare: what is causal and what is not apart, times first.
inline std::vector<Plot> compare_plots() {
  struct Kind {
    const char* file;
    const char* pass;
    PlotPasses passes;
    bool causal;
  };
  constexpr Kind kinds[] = {
      {"_causal", "a forward pass, causal", PlotPasses::forward, true},
      {"_not_causal", "a forward pass, not causal", PlotPasses::forward, false},
      {"_training_causal", "a training step, causal", PlotPasses::training, true},
      {"_training_not_causal", "a training step, not causal", PlotPasses::training, false},
      {"_decoding", "decoding one token", PlotPasses::decode, true}};
  std::vector<Plot> plots;
  for (const Kind& kind : kinds) {
    plots.push_back({std::string("time") + kind.file, std::string("Time of ") + kind.pass,
                     "milliseconds", milliseconds_of, false, kind.passes, kind.causal});
  }
  for (const Kind& kind : kinds) {
    const bool decodes = kind.passes == PlotPasses::decode;
    plots.push_back({std::string("memory") + kind.file,
                     std::string("Memory of ") + (decodes ? "a decoder" : kind.pass),
                     decodes ? "bytes, with keys and values" : "bytes, without inputs and output",
                     bytes_of, true, kind.passes, kind.causal});
  }
  return plots;
}

/// A line for each label, in the order of the table.
inline std::vector<PlotSeries> series_of(const std::vector<Row>& rows, const Plot& plot) {
  std::vector<PlotSeries> lines;
  for (const Row& row : rows) {
    if (!plot.shows(row)) continue;
    line_of(lines, row.names.label, row.names.op)
        .points.emplace_back(static_cast<double>(row.n), plot.value(row));
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

/// Time against distance from full attention at one N, of what is causal or of what is not. Without
/// a line if no row has both.
inline SvgPlot distance_picture(const Comparison& run, bool causal) {
  const Index n = longest_with_distance(run.rows, causal);
  const std::string kind = causal ? "causal" : "not causal";
  std::string full;  // which has no place on the axis of distances
  for (const Row& row : run.rows) {
    if (has_distance(row, causal, n) && row.names.label == row.yardstick) {
      full = "full attention " + detail::short_number(row.seconds * 1e3, "%.3g") + " ms, ";
    }
  }
  SvgPlot picture{causal ? "distance_causal" : "distance_not_causal",
                  "Distance from full attention against time, " + kind,
                  "N = " + std::to_string(n) + ", " + full + subtitle_of(run),
                  {.label = "milliseconds of a forward pass"},
                  {.label = "|out - full| / |full|"},
                  {},
                  false,
                  "an operator",
                  "fastest within each distance"};
  PlotSeries best{"", "heads", {}, false, true};
  for (const Row* const row : fastest_at_distances(run.rows, causal, n)) {
    if (*row->difference < kSameAsFull) continue;
    best.points.emplace_back(row->seconds * 1e3, *row->difference);
  }
  if (!best.points.empty()) picture.series.push_back(std::move(best));
  for (const Row& row : run.rows) {
    if (!has_distance(row, causal, n) || *row.difference < kSameAsFull) continue;
    picture.series.push_back(
        {row.names.label, row.names.op, {{row.seconds * 1e3, *row.difference}}});
  }
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
