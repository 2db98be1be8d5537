// SPDX-License-Identifier: MIT
/// \file
/// Another run of fovea_compare, read from its JSON, to be laid over one. Test:
/// tests/bench/io/compare_against_test.cpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/compare_json.hpp"
#include "bench/io/compare_plots.hpp"

namespace bench {

/// The rows of another run, with what can be compared of them: time and memory.
struct OtherRun {
  std::string file;
  std::string machine;
  std::vector<Row> rows;

  /// Seconds of the same label, pass and N; none if it was not measured.
  std::optional<double> seconds(const Row& row) const {
    const auto same = std::ranges::find_if(rows, [&](const Row& other) {
      return other.names.label == row.names.label && other.names.pass == row.names.pass &&
             other.n == row.n;
    });
    if (same == rows.end()) return {};
    return same->seconds;
  }
};

/// What was measured in the run of a file. \throws std::runtime_error
inline OtherRun read_run(const std::string& file) {
  Comparison run = read_comparison(file);
  std::erase_if(run.rows, [](const Row& row) { return !row.skipped.empty(); });
  return {file, run.fact("cpu"), std::move(run.rows)};
}

/// The lines of the other run behind those of this one, faint, where both have them.
inline void lay_over(SvgPlot& picture, const OtherRun& other, const Plot& plot) {
  std::vector<PlotSeries> behind;
  for (PlotSeries line : series_of(other.rows, plot)) {
    if (std::ranges::find(picture.series, line.label, &PlotSeries::label) == picture.series.end()) {
      continue;
    }
    line.faint = true;
    behind.push_back(std::move(line));
  }
  if (behind.empty()) return;
  picture.series.insert(picture.series.begin(), behind.begin(), behind.end());
  picture.subtitle += "; dotted: " + other.machine + " (" + other.file + ")";
}

}  // namespace bench
