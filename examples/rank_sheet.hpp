// SPDX-License-Identifier: MIT
/// \file
/// Pictures, as SVG, of a sequence that is distributed over ranks: which rank holds which rows, and
/// what it receives. Colours show the rank that holds a row.
#pragma once

#include <fovea/distributed/messages/exchange_plan.hpp>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace drawing {

using fovea::Index;
using fovea::Range;
using fovea::distributed::ExchangePlan;
using fovea::distributed::RowLayout;
using fovea::distributed::Transfer;

inline constexpr int kRanks = 4;
/// The palette of Okabe and Ito, which is distinguishable with colour blindness.
inline constexpr const char* kColours[kRanks] = {"#0072B2", "#D98200", "#009E73", "#B5548F"};

/// Sizes in units of the sheet.
inline constexpr double kPanelWidth = 430, kPanelHeight = 206, kMargin = 20;
inline constexpr double kLabels = 52, kRowBlocks = 300;  // width of the labels, and of the rows
inline constexpr double kHeld = 66, kFirst = 88, kStep = 22, kThick = 15;  // places of strips

/// How strongly a row is drawn.
enum class Ink { own, here, coming, later };

/// A text and a number behind it. (GCC 12 warns of a sum of texts that begins with a short one: bug
/// 105329.)
inline std::string with(const char* text, double number) {
  std::ostringstream whole;
  whole << text << number;
  return whole.str();
}

/// One picture.
class Panel {
 public:
  /// Texts are written to the SVG without escaping.
  Panel(const std::string& title, const std::vector<std::string>& lines) {
    text(0, 12, title, " font-weight=\"bold\" font-size=\"13\"");
    double y = 12;
    for (const std::string& line : lines) text(0, y += 15, line);
  }

  void text(double x, double y, const std::string& what, const std::string& style = "") {
    svg_ << "<text x=\"" << x << "\" y=\"" << y << "\"" << style << ">" << what << "</text>\n";
  }
  void box(double x, double y, double width, double height, int rank, Ink ink) {
    static constexpr const char* styles[] = {"", " fill-opacity=\".5\"",
                                             " fill-opacity=\".5\" stroke-dasharray=\"2 2\"",
                                             " fill-opacity=\".1\" stroke-opacity=\".5\""};
    svg_ << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << width << "\" height=\""
         << height << "\" fill=\"" << kColours[rank] << "\" stroke=\"" << kColours[rank] << "\""
         << styles[static_cast<int>(ink)] << "/>\n";
  }
  void frame(double x, double y, double width, double height) {
    svg_ << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << width << "\" height=\""
         << height << "\" fill=\"none\" stroke=\"#999999\"/>\n";
  }
  /// From a point on. \param to a path of SVG, whose end has a head
  void arrow(double x, double y, const std::string& to) {
    svg_
        << "<path d=\"M" << x << " " << y << to
        << "\" fill=\"none\" stroke=\"#404040\" stroke-width=\"1.4\" marker-end=\"url(#head)\"/>\n";
  }
  void line(double x, double y, const std::string& to) {
    svg_ << "<path d=\"M" << x << " " << y << to << "\" fill=\"none\" stroke=\"#404040\"/>\n";
  }
  std::string svg() const { return svg_.str(); }

 private:
  std::ostringstream svg_;
};

/// Where the strip of a rank begins.
inline double top_of(int rank) { return kFirst + kStep * rank; }
/// The position of a row in a sequence of that many.
inline double x_of(Index row, Index rows) {
  return kLabels + kRowBlocks * static_cast<double>(row) / static_cast<double>(rows);
}

inline void draw_ranges(Panel& panel, double top, double thick, const std::vector<Range>& ranges,
                        Index rows, int colour, Ink ink) {
  for (const Range& range : ranges) {
    const double x = x_of(range.begin, rows);
    panel.box(x, top, x_of(range.end, rows) - x, thick, colour, ink);
  }
}

/// Draws which rank holds which rows, above the strips, and the names of ranks.
inline void draw_holders(Panel& panel, const RowLayout& layout, double above = kHeld) {
  panel.text(0, above + 10, "held by", " fill=\"#606060\"");
  for (int rank = 0; rank < kRanks; ++rank) {
    draw_ranges(panel, above, 12, layout.of(rank), layout.rows(), rank, Ink::own);
    panel.text(0, top_of(rank) + 12, with("rank ", rank));
  }
}

/// Draws what each rank receives.
/// \param plan_of plan_of(rank)   \param ink ink(rows) of what is received
inline void draw_received(Panel& panel, const RowLayout& layout,
                          const std::function<ExchangePlan(int)>& plan_of,
                          const std::function<Ink(const Range&)>& ink) {
  for (int rank = 0; rank < kRanks; ++rank) {
    const double top = top_of(rank);
    panel.frame(x_of(0, 1), top, kRowBlocks, kThick);
    Index count = 0;
    for (const Transfer& from : plan_of(rank).receives) {
      for (const Range& range : from.rows) {
        draw_ranges(panel, top, kThick, {range}, layout.rows(), from.rank, ink(range));
        count += range.end - range.begin;
      }
    }
    draw_ranges(panel, top, kThick, layout.of(rank), layout.rows(), rank, Ink::own);
    panel.text(kLabels + kRowBlocks + 8, top + 12, with("receives ", static_cast<double>(count)),
               " fill=\"#606060\"");
  }
}

/// All pictures, in two columns. The sheet has a background, so that it is visible on a dark page,
/// too.
inline std::string sheet_of(const std::string& heading, const std::vector<Panel>& panels) {
  const double width = 2 * (kPanelWidth + kMargin) + kMargin;
  const auto lines = static_cast<double>((panels.size() + 1) / 2);
  const double height = 54 + lines * kPanelHeight;
  std::ostringstream svg;
  svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\"" << height
      << "\" viewBox=\"0 0 " << width << " " << height
      << "\" font-family=\"Helvetica,Arial,sans-serif\" font-size=\"11.5\">\n"
      << "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
         "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#404040\"/></marker>"
         "</defs>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#FFFFFF\"/>\n"
      << "<g fill=\"#202020\">\n<text x=\"" << kMargin << "\" y=\"28\" font-size=\"13\">" << heading
      << "</text>\n";
  for (std::size_t n = 0; n < panels.size(); ++n) {
    svg << "<g transform=\"translate("
        << kMargin + static_cast<double>(n % 2) * (kPanelWidth + kMargin) << " "
        << 54 + static_cast<double>(n / 2) * kPanelHeight << ")\">\n"
        << panels[n].svg() << "</g>\n";
  }
  svg << "</g>\n</svg>\n";
  return svg.str();
}

}  // namespace drawing
