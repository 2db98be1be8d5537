// SPDX-License-Identifier: MIT
/// \file
/// Another run of fovea_compare, read from its JSON, to be laid over one. Test:
/// tests/bench/io/compare_against_test.cpp.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/io/compare_plots.hpp"
#include "bench/io/read_file.hpp"
#include "tests/structure/json.hpp"

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

/// \throws std::runtime_error if the file is no result of fovea_compare
inline OtherRun read_run(const std::string& file) {
  using fovea_test::Json;
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error(file + ": is no result of fovea_compare: " + why);
  };
  Json json;
  try {
    json = fovea_test::JsonReader::read(read_file(file));
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  }
  const Json* const program = json.find("program");
  if (program == nullptr || program->text != "fovea_compare") refuse("it names another program");
  const Json* const machine = json.find("machine");
  const Json* const cpu = machine == nullptr ? nullptr : machine->find("cpu");
  OtherRun run{file, cpu == nullptr ? "unknown" : cpu->text, {}};
  const Json* const results = json.find("results");
  if (results == nullptr) refuse("it has no results");
  for (const Json& item : results->items) {
    const auto text = [&](const char* key) {
      const Json* const found = item.find(key);
      if (found == nullptr) refuse(std::string("a result has no ") + key);
      return found->text;
    };
    if (item.find("milliseconds") == nullptr) continue;  // it was not measured
    Row row;
    row.names.op = text("operator");
    row.names.label = text("label");
    const std::string pass = text("pass");
    for (int p = 0; p <= static_cast<int>(Pass::graph); ++p) {
      if (pass == name(static_cast<Pass>(p))) row.names.pass = static_cast<Pass>(p);
    }
    row.n = std::atoll(text("n").c_str());
    row.seconds = std::atof(text("milliseconds").c_str()) * 1e-3;
    row.workspace_bytes = std::atoll(text("workspace_bytes").c_str());
    if (row.n < 1 || !(row.seconds > 0)) refuse("a result has no time or length");
    run.rows.push_back(std::move(row));
  }
  return run;
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
