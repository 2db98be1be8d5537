// SPDX-License-Identifier: MIT
/// \file
/// Line charts as SVG, side by side.
#pragma once

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace drawing {

struct Line {
  std::string name;
  std::string colour;
  std::vector<std::pair<double, double>> points;
};

/// From 0 to the largest x, and from 0 to `top`. Texts are written to the SVG without escaping.
struct Chart {
  std::string title;
  std::string x_name;
  std::vector<Line> lines;
  double top = 1;
  int ticks = 5;  ///< of the y axis besides 0
};

namespace detail {

inline constexpr double kWidth = 380, kHeight = 250, kLeft = 50, kTop = 40, kBottom = 110;
inline constexpr double kLegend = 56, kLegendRow = 16;  // below the axis

inline std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

inline void text(std::ostream& svg, double x, double y, const char* anchor, const std::string& what,
                 const char* style = "") {
  svg << "<text x=\"" << number(x) << "\" y=\"" << number(y) << "\" text-anchor=\"" << anchor
      << "\"" << style << ">" << what << "</text>\n";
}

inline void draw(std::ostream& svg, const Chart& chart, double left) {
  double last = 1;
  for (const Line& line : chart.lines) {
    for (const auto& [x, y] : line.points) last = std::max(last, x);
  }
  const auto x_at = [&](double x) { return left + x / last * kWidth; };
  const auto y_at = [&](double y) { return kTop + kHeight * (1 - y / chart.top); };
  text(svg, left, kTop - 16, "start", chart.title, " font-weight=\"bold\"");
  for (int tick = 0; tick <= chart.ticks; ++tick) {
    const double y = chart.top * tick / chart.ticks;
    svg << "<path d=\"M" << number(left) << " " << number(y_at(y)) << "h" << kWidth
        << "\" stroke=\"#dddddd\"/>\n";
    text(svg, left - 6, y_at(y) + 4, "end", number(y));
  }
  for (int tick = 0; tick <= 4; ++tick) {
    const double x = last * tick / 4;
    text(svg, x_at(x), kTop + kHeight + 18, "middle", number(x));
  }
  text(svg, left + kWidth / 2, kTop + kHeight + 36, "middle", chart.x_name);
  double legend = kTop + kHeight + kLegend;
  for (const Line& line : chart.lines) {
    svg << "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" << line.colour << "\" points=\"";
    for (const auto& [x, y] : line.points) svg << number(x_at(x)) << "," << number(y_at(y)) << " ";
    svg << "\"/>\n<path d=\"M" << number(left) << " " << number(legend - 4)
        << "h24\" stroke-width=\"2\" stroke=\"" << line.colour << "\"/>\n";
    text(svg, left + 30, legend, "start", line.name);
    legend += kLegendRow;
  }
}

}  // namespace detail

/// Writes the charts. Returns whether the file could be written.
inline bool write_charts(const std::string& file, const std::vector<Chart>& charts) {
  using namespace detail;
  const double step = kLeft + kWidth + 20;
  const double width = step * static_cast<double>(charts.size());
  double below = kBottom;
  for (const Chart& chart : charts) {
    below = std::max(below, kLegend + kLegendRow * static_cast<double>(chart.lines.size()));
  }
  const double height = kTop + kHeight + below;
  std::ostringstream svg;
  svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\"" << height
      << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  for (std::size_t i = 0; i < charts.size(); ++i) {
    draw(svg, charts[i], kLeft + step * static_cast<double>(i));
  }
  svg << "</svg>\n";
  std::ofstream out(file);
  out << svg.str();
  return out.flush().good();
}

}  // namespace drawing
