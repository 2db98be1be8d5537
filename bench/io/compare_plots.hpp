// SPDX-License-Identifier: MIT
/// \file
/// Time and memory against N as a gnuplot script with its data. Test:
/// tests/bench/compare_plots_test.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/compare_json.hpp"
#include "bench/io/gnuplot.hpp"
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

namespace detail {

/// The labels in the order of the table, each with its operator.
inline std::vector<Names> lines_of(const Plot& plot, const std::vector<Row>& rows) {
  std::vector<Names> lines;
  std::set<std::string> seen;
  for (const Row& row : rows) {
    if (plot.shows(row) && seen.insert(row.names.label).second) lines.push_back(row.names);
  }
  return lines;
}

/// The operators in the order of the table.
inline std::map<std::string, std::size_t> numbers_of(const std::vector<Row>& rows) {
  std::map<std::string, std::size_t> numbers;
  for (const Row& row : rows) numbers.try_emplace(row.names.op, numbers.size());
  return numbers;
}

/// Colour by operator (the palette of Okabe and Ito, which colour-blind people can tell apart, and
/// five of Tol's); dashes and hollow points for its further variants, and for decoding.
inline std::string line_styles(const std::vector<Names>& lines,
                               const std::map<std::string, std::size_t>& numbers) {
  constexpr std::array colours = {"#0072B2", "#009E73", "#D55E00", "#E69F00", "#CC79A7",
                                  "#56B4E9", "#882255", "#44AA99", "#999933", "#332288",
                                  "#000000", "#7F7F7F", "#661100"};
  const int filled[] = {7, 5, 9, 13, 11};
  std::map<std::string, int> seen;  // operator -> variants so far
  std::string text;
  int style = 0;
  for (const Names& line : lines) {
    const std::size_t op = numbers.at(line.op);
    int& variants = seen[line.op];
    if (line.pass == Pass::decode) variants = std::max(variants, 1);
    text += "set style line " + std::to_string(++style) + " lw 2 ps 1.1 lc rgb '" +
            colours[op % colours.size()] + "' dt " + std::to_string(variants + 1) + " pt " +
            std::to_string(filled[op % 5] - (variants == 0 ? 0 : 1)) + "\n";
    ++variants;
  }
  return text;
}

/// The y axis around the values: decades, or powers of 4 named in KiB, MiB, ...
inline std::string y_axis(const Plot& plot, const std::vector<Row>& rows) {
  double least = std::numeric_limits<double>::max();
  double most = 0;
  for (const Row& row : rows) {
    if (!plot.shows(row) || plot.value(row) <= 0) continue;
    least = std::min(least, plot.value(row));
    most = std::max(most, plot.value(row));
  }
  if (most <= 0) return "unset logscale y\nset yrange [0:1]\n";
  const std::string range =
      "set yrange [" + json_number(least / 1.6) + ":" + json_number(most * 1.6) + "]\nset ytics ";
  if (!plot.binary_units) return "set logscale y 10\n" + range + "auto format '%g'\n";
  std::string ticks;
  for (int power = 0; power < 50; power += 2) {
    char label[32];
    std::snprintf(
        label, sizeof label, "%d %s", 1 << power % 10,
        std::array{"B", "KiB", "MiB", "GiB", "TiB"}[static_cast<std::size_t>(power / 10)]);
    ticks += (power == 0 ? "(" : ", ") + gnuplot_quoted(label) + " 2.0**" + std::to_string(power);
  }
  return "set logscale y 2\n" + range + ticks + ")\n";
}

/// `set` commands that all plots share.
inline std::string common_settings(const Comparison& run) {
  std::string text =
      "set encoding utf8\n"
      "set logscale x 2\n"
      "set xlabel 'sequence length N'\n"
      "set grid xtics ytics lt 1 lw 0.6 lc rgb '#DDDDDD'\n"
      "set border 3 lc rgb '#404040'\n"
      "set tics nomirror out\n"
      "set xtics (";
  std::string separator;
  for (const Index n : run.arguments.lengths) {
    text += separator + "'" + std::to_string(n) + "' " + std::to_string(n);
    separator = ", ";
  }
  const auto end = [](Index n, double factor) {
    return json_number(static_cast<double>(n) * factor);
  };
  return text + ")\nset xrange [" + end(run.arguments.lengths.front(), 0.93) + ":" +
         end(run.arguments.lengths.back(), 1.07) + "]\n";
}

inline std::string subtitle(const Comparison& run) {
  return heads_and_width(run.shape) + ", float32, " + std::to_string(run.arguments.threads) +
         (run.arguments.threads == 1 ? " thread, level " : " threads, level ") +
         fovea::name(fovea::isa_level()) + ", " + cpu_name();
}

}  // namespace detail

namespace detail {

/// A line: (N, value) for each length.
using Points = std::vector<std::pair<Index, double>>;

inline Points points_of(const std::string& label, const Plot& plot, const std::vector<Row>& rows) {
  Points points;
  for (const Row& row : rows) {
    if (row.names.label == label && plot.shows(row)) points.emplace_back(row.n, plot.value(row));
  }
  return points;
}

/// Whether two lines are one to the eye.
inline bool look_the_same(const Points& a, const Points& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && std::abs(x.second - y.second) <= 0.005 * x.second;
  });
}

/// "N value", one pair per text line.
inline std::string text_of(const Points& points) {
  std::string text;
  for (const auto& [n, value] : points) text += std::to_string(n) + " " + json_number(value) + "\n";
  return text;
}

/// What draws a plot, and the entries of its key.
struct PlotCommand {
  std::string text;
  std::vector<std::string> key;
};

/// Writes the lines' data as named blocks to `blocks`; returns the `plot` command, or nothing if
/// there is no line. A line that another one would hide is only named in the key, after that one
/// and with its sample.
inline PlotCommand plot_command(const Comparison& run, const Plot& plot, std::string& blocks) {
  const std::vector<Names> lines = lines_of(plot, run.rows);
  std::vector<Points> data;
  data.reserve(lines.size());
  for (const Names& line : lines) data.push_back(points_of(line.label, plot, run.rows));
  std::vector<bool> named(lines.size());
  PlotCommand command;
  const auto add = [&](const std::string& drawn, const std::string& label) {
    command.text +=
        (command.text.empty() ? "plot " : ", \\\n  ") + drawn + " title " + gnuplot_quoted(label);
    command.key.push_back(label);
  };
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (named[i]) continue;
    const std::string block = "$" + plot.file + std::to_string(i);
    blocks += block + " << EOD\n" + text_of(data[i]) + "EOD\n";
    const std::string style = " with linespoints ls " + std::to_string(i + 1);
    add(block + style, lines[i].label);
    for (std::size_t same = i + 1; same < lines.size(); ++same) {
      if (named[same] || !look_the_same(data[same], data[i])) continue;
      named[same] = true;
      add("keyentry" + style, "same: " + lines[same].label);
    }
  }
  if (!command.text.empty()) command.text += "\n";
  return command;
}

}  // namespace detail

/// Refuses at once the files that a script and its plots could not be written to.
/// \throws std::runtime_error
inline void check_plots(const std::string& script, const std::vector<Plot>& plots,
                        const std::string& directory) {
  fovea::check_output(script);
  for (const Plot& plot : plots) {
    for (const PictureFormat& format : kPictureFormats) {
      fovea::check_output(directory + "/" + plot.file + format.extension);
    }
  }
}

/// The script; it writes <directory>/<file>.svg and .png for every plot.
inline std::string gnuplot_script(const Comparison& run, const std::vector<Plot>& plots,
                                  const std::string& directory) {
  std::string text =
      "# gnuplot draws the plots of this file again.\n" + detail::common_settings(run);
  for (const Plot& plot : plots) {
    const detail::PlotCommand command = detail::plot_command(run, plot, text);
    if (command.text.empty()) continue;
    text += detail::line_styles(detail::lines_of(plot, run.rows), detail::numbers_of(run.rows));
    text += detail::y_axis(plot, run.rows);
    text += "set ylabel " + detail::gnuplot_quoted(plot.y_label) + "\n";
    const PictureLayout layout(command.key);
    for (const PictureFormat& format : kPictureFormats) {
      text += layout.commands(format) + layout.titles(format, plot.title, detail::subtitle(run)) +
              "set output " +
              detail::gnuplot_quoted(directory + "/" + plot.file + format.extension) + "\n" +
              command.text + "unset output\n";
    }
  }
  return text;
}

}  // namespace bench
