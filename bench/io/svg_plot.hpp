// SPDX-License-Identifier: MIT
/// \file
/// Plots on logarithmic axes as SVG: each line has a label next to it, and the picture follows the
/// reader's light or dark theme. Test: tests/bench/io/svg_plot_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/io/plot_axis.hpp"
#include "bench/io/plot_names.hpp"
#include "bench/io/system_styles.hpp"

namespace bench {

/// What is drawn of a system: marks, and a line between them. Dashes mean the same in every plot;
/// what is causal and what is not has a plot each.
struct PlotSeries {
  std::string label;
  std::string system;
  std::vector<std::pair<double, double>> points;  ///< positive; others are left out
  bool dashed = false;                            ///< a further variant of its system
  bool thick = false;                             ///< the best set, without marks
  bool faint = false;                             ///< of another run: dotted, without a name
};

struct SvgPlot {
  std::string file;  ///< without extension
  std::string title;
  std::string subtitle;
  PlotAxis x, y;
  std::vector<PlotSeries> series = {};
  /// Whether labels are in a column at the right end; otherwise each is next to its last point.
  bool names_in_column = true;
  std::string line = "an operator; its marks are measured";  ///< what a line is, for the legend
  std::string thick = {};                                    ///< the same of a thick line
};

/// The line of that label, which is added if it is not there: as a variant if its system has one.
inline PlotSeries& line_of(std::vector<PlotSeries>& lines, const std::string& label,
                           const std::string& system) {
  const auto line = std::ranges::find(lines, label, &PlotSeries::label);
  if (line != lines.end()) return *line;
  const bool is_variant = std::ranges::any_of(
      lines, [&](const PlotSeries& s) { return !s.thick && !s.faint && s.system == system; });
  return lines.emplace_back(PlotSeries{label, system, {}, is_variant});
}

/// text with the characters of markup escaped.
inline std::string escaped_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    if (c == '<') out += "&lt;";
    if (c == '>') out += "&gt;";
    if (c == '"') out += "&quot;";
    if (c != '&' && c != '<' && c != '>' && c != '"') out += c;
  }
  return out;
}

namespace detail {

/// Draws one plot.
class PlotWriter {
 public:
  static constexpr double kPlotWidth = 640, kPlotHeight = 480;
  static constexpr double kLeft = 86, kTop = 74, kBottom = 58, kNameHeight = 16, kKeyHeight = 20;

  explicit PlotWriter(const SvgPlot& plot)
      : plot_(plot),
        x_(scale(0, kLeft, kLeft + kPlotWidth, 1.06)),
        y_(scale(1, kTop + kPlotHeight, kTop, 1.25)) {
    find_keys();
    double names = 20;
    for (const PlotSeries& s : plot.series) {
      if (!s.faint) names = std::max(names, text_width(s.label) + 40);
    }
    width_ = std::max(kLeft + kPlotWidth + (plot.names_in_column ? names : 24),
                      20 + text_width(plot.subtitle) + 20);
    for (const Key& key : keys_) {
      width_ = std::max(width_, kLeft + 40 + text_width(key.meaning) + 20);
    }
  }

  std::string text() {
    svg_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + short_number(width_) + " " +
           short_number(kTop + kPlotHeight + kBottom +
                        kKeyHeight * static_cast<double>(keys_.size())) +
           "\" width=\"" + short_number(width_) +
           "\" font-family=\"Helvetica,Arial,sans-serif\" font-size=\"13\" role=\"img\" "
           "aria-label=\"" +
           escaped_markup(plot_.title) + "\">\n" + style_sheet() +
           "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n";
    put_text(20, 30, plot_.title, "ink", " font-size=\"18\"");
    put_text(20, 52, plot_.subtitle, "soft");
    draw_axes();
    for (const PlotSeries& s : plot_.series) draw_series(s);
    double last = 0;
    for (const PlotSeries& s : plot_.series) {
      for (const Point& p : s.points) last = std::max(last, is_drawn(p) ? p.first : 0);
    }
    // A line that ends before the others has its name at its end.
    std::vector<const PlotSeries*> in_column;
    std::vector<const PlotSeries*> at_points;
    for (const PlotSeries& s : plot_.series) {
      Point end;
      if (s.faint || !last_of(s, end)) continue;
      const bool is_long = plot_.names_in_column && end.first > x_.at(last) - 1;
      (is_long ? in_column : at_points).push_back(&s);
    }
    name_in_column(in_column);
    name_at_points(at_points);
    draw_keys();
    return svg_ + "</svg>\n";
  }

 private:
  /// A line of the legend: how it is drawn, and what it means.
  struct Key {
    PlotSeries look;
    std::string meaning;
    bool has_line = true;  ///< otherwise a mark alone
  };

  void add_key(bool PlotSeries::*is, std::string meaning) {
    if (std::ranges::none_of(plot_.series, [is](const PlotSeries& s) { return s.*is; })) return;
    Key key{{}, std::move(meaning)};
    key.look.*is = true;
    keys_.push_back(std::move(key));
  }

  void find_keys() {
    Key plain{{}, plot_.line, false};
    bool is_plain = false;
    for (const PlotSeries& s : plot_.series) {
      if (s.thick || s.faint || s.dashed) continue;
      is_plain = true;
      plain.has_line |= s.points.size() > 1;
    }
    if (is_plain && !plot_.line.empty()) keys_.push_back(std::move(plain));
    add_key(&PlotSeries::dashed, "dashes: a further variant of the one in that colour");
    add_key(&PlotSeries::thick, plot_.thick);
    add_key(&PlotSeries::faint, "the same in the other run");
  }

  /// The legend, below the axis.
  void draw_keys() {
    double y = kTop + kPlotHeight + kBottom + 6;
    for (const Key& key : keys_) {
      svg_ += "<g class=\"key\">";
      if (!key.look.thick && !key.look.faint) draw_mark(Mark::circle, kLeft + 16, y);
      if (key.has_line) {
        draw_line(key.look, short_number(kLeft) + "," + short_number(y) + " " +
                                short_number(kLeft + 32) + "," + short_number(y));
      }
      svg_ += "</g>\n";
      put_text(kLeft + 40, y + 4.5, key.meaning, "soft");
      y += kKeyHeight;
    }
  }

  /// A line through points, "x,y x,y".
  void draw_line(const PlotSeries& s, const std::string& points) {
    svg_ += "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"currentColor\"" +
            (s.thick ? " stroke-width=\"5\" stroke-opacity=\".45\" stroke-linejoin=\"round\""
                     : " stroke-width=\"1.8\"") +
            (s.faint    ? " stroke-dasharray=\"1.5 3\""
             : s.dashed ? " stroke-dasharray=\"5 4\""
                        : "") +
            "/>";
  }

  static bool is_drawn(const Point& p) { return p.first > 0 && p.second > 0; }

  /// Around all values of one coordinate, with a margin of at most a tenth of what they span.
  LogScale scale(int coordinate, double from, double to, double margin) const {
    double low = 0;
    double high = 0;
    for (const PlotSeries& s : plot_.series) {
      for (const Point& p : s.points) {
        if (!is_drawn(p)) continue;
        const double value = coordinate == 0 ? p.first : p.second;
        low = low == 0 ? value : std::min(low, value);
        high = std::max(high, value);
      }
    }
    if (low == 0) low = high = 1;
    if (high > low) margin = std::min(margin, std::pow(high / low, 0.1));
    return {low / margin, high * margin, from, to};
  }

  std::string style_sheet() const {
    std::set<std::string> systems;
    for (const PlotSeries& s : plot_.series) systems.insert(s.system);
    std::string light =
        ".paper{fill:#fff}.ink{fill:#1b1b1b}.soft{fill:#555}.key{color:#555}.grid{stroke:#dedede}"
        ".name{stroke:#fff;stroke-width:3.5px;paint-order:stroke}";
    std::string dark =
        ".paper{fill:#14171a}.ink{fill:#ececec}.soft{fill:#a5a5a5}.key{color:#a5a5a5}"
        ".grid{stroke:#33383d}.name{stroke:#14171a}";
    for (const std::string& system : systems) {
      const SystemStyle style = style_of(system);
      light += ".s-" + system + "{color:" + std::string(style.light) + "}";
      dark += ".s-" + system + "{color:" + std::string(style.dark) + "}";
    }
    return "<style>" + light + "\n@media (prefers-color-scheme:dark){" + dark + "}</style>\n";
  }

  void put_text(double x, double y, std::string_view what, std::string_view kind,
                std::string_view more = "") {
    svg_ += "<text x=\"" + short_number(x) + "\" y=\"" + short_number(y) + "\" class=\"" +
            std::string(kind) + "\"" + std::string(more) + ">" + escaped_markup(what) + "</text>\n";
  }

  void draw_axes() {
    for (const double tick : ticks_of(plot_.x, x_)) {
      const std::string at = short_number(x_.at(tick));
      svg_ += "<path class=\"grid\" d=\"M" + at + " " + short_number(kTop) + "v" +
              short_number(kPlotHeight) + "\"/>\n";
      put_text(x_.at(tick), kTop + kPlotHeight + 19, tick_text(tick, plot_.x.bytes), "soft",
               " text-anchor=\"middle\"");
    }
    for (const double tick : ticks_of(plot_.y, y_)) {
      svg_ += "<path class=\"grid\" d=\"M" + short_number(kLeft) + " " + short_number(y_.at(tick)) +
              "h" + short_number(kPlotWidth) + "\"/>\n";
      put_text(kLeft - 8, y_.at(tick) + 4, tick_text(tick, plot_.y.bytes), "soft",
               " text-anchor=\"end\"");
    }
    put_text(kLeft + kPlotWidth / 2, kTop + kPlotHeight + 43, plot_.x.label, "ink",
             " text-anchor=\"middle\"");
    const std::string middle = short_number(kTop + kPlotHeight / 2);
    put_text(20, kTop + kPlotHeight / 2, plot_.y.label, "ink",
             " text-anchor=\"middle\" transform=\"rotate(-90 20 " + middle + ")\"");
  }

  void draw_mark(Mark mark, double x, double y) {
    const auto place = [&](double dx, double dy) {
      return short_number(x + dx) + " " + short_number(y + dy);
    };
    if (mark == Mark::circle) {
      svg_ += "<circle cx=\"" + short_number(x) + "\" cy=\"" + short_number(y) +
              "\" r=\"3.6\" fill=\"currentColor\"/>";
      return;
    }
    std::string path = "M" + place(-3.3, -3.3) + "h6.6v6.6h-6.6z";
    if (mark == Mark::triangle) path = "M" + place(0, -4.6) + "l4.4 7.8h-8.8z";
    if (mark == Mark::diamond) path = "M" + place(0, -5) + "l4.6 5l-4.6 5l-4.6 -5z";
    svg_ += "<path d=\"" + path + "\" fill=\"currentColor\"/>";
  }

  void draw_series(const PlotSeries& s) {
    std::string line;
    svg_ += "<g class=\"s-" + s.system + "\"><title>" + escaped_markup(s.label) + "</title>";
    for (const Point& p : s.points) {
      if (!is_drawn(p)) continue;
      const double x = x_.at(p.first);
      const double y = y_.at(p.second);
      line += short_number(x) + "," + short_number(y) + " ";
      if (!s.thick && !s.faint) draw_mark(style_of(s.system).mark, x, y);
      marks_.push_back({x - 4, y - 4, x + 4, y + 4});
    }
    draw_line(s, line);
    svg_ += "</g>\n";
    take_line(s);
  }

  /// No name is to be put on the line between two points.
  void take_line(const PlotSeries& s) {
    const Point* before = nullptr;
    for (const Point& p : s.points) {
      if (!is_drawn(p)) continue;
      if (before != nullptr) {
        add_boxes(marks_, {x_.at(before->first), y_.at(before->second)},
                  {x_.at(p.first), y_.at(p.second)});
      }
      before = &p;
    }
  }

  /// The last point that is drawn, in pixels.
  bool last_of(const PlotSeries& s, Point& at) const {
    const auto last = std::find_if(s.points.rbegin(), s.points.rend(), is_drawn);
    if (last == s.points.rend()) return false;
    at = {x_.at(last->first), y_.at(last->second)};
    return true;
  }

  void put_name(const PlotSeries& s, double x, double y) {
    put_text(x, y + 4.5, s.label, "name s-" + s.system, " fill=\"currentColor\"");
  }

  /// Labels in a column, as near to the ends of their lines as possible.
  void name_in_column(const std::vector<const PlotSeries*>& lines) {
    std::vector<std::pair<const PlotSeries*, Point>> ends;
    for (const PlotSeries* const s : lines) {
      Point end;
      if (last_of(*s, end)) ends.emplace_back(s, end);
    }
    std::sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second.second, a.first) < std::pair(b.second.second, b.first);
    });
    // Down from the first one, then up again from the bottom of the plot.
    std::vector<double> places;
    for (const auto& end : ends) {
      const double least = places.empty() ? kTop : places.back() + kNameHeight;
      places.push_back(std::max(end.second.second, least));
    }
    double most = kTop + kPlotHeight + 6;
    for (std::size_t i = ends.size(); i-- > 0; most = places[i] - kNameHeight) {
      places[i] = std::min(places[i], most);
    }
    constexpr double edge = kLeft + kPlotWidth;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const auto& [series, end] = ends[i];
      svg_ += "<path class=\"s-" + series->system + "\" stroke=\"currentColor\" fill=\"none\" " +
              "stroke-opacity=\".5\" d=\"M" + short_number(end.first + 5) + " " +
              short_number(end.second) + "L" + short_number(edge) + " " + short_number(end.second) +
              "L" + short_number(edge + 18) + " " + short_number(places[i]) + "\"/>\n";
      put_name(*series, edge + 22, places[i]);
    }
  }

  /// What names at points are not to be on.
  struct Taken {
    std::vector<Box> marks, names, leaders;
  };

  /// Finds a position for a label next to one of its line's points, inside the plot, that overlaps
  /// no other label or mark. `strict`: nor a leader line, and its own leader line crosses no label.
  bool find_place(const PlotSeries& s, const Taken& taken, bool strict, Point& of,
                  Box& place) const {
    const double right = plot_.names_in_column ? kLeft + kPlotWidth : width_;
    const double width = text_width(s.label);
    for (auto p = s.points.rbegin(); p != s.points.rend(); ++p) {
      if (!is_drawn(*p)) continue;
      of = {x_.at(p->first), y_.at(p->second)};
      for (const Point& to : places_around(width)) {
        const double left = of.first + to.first;
        const double middle = of.second + to.second;
        place = {left, middle - 7, left + width, middle + 7};
        const bool inside = place.left >= kLeft && place.right <= right && place.top >= kTop - 8 &&
                            place.bottom <= kTop + kPlotHeight;
        if (!inside || meets_any(place, taken.marks) || meets_any(place, taken.names)) continue;
        std::vector<Box> leader;
        if (strict) add_boxes(leader, of, end_of_leader(of, place));
        const auto crosses = [&](const Box& part) { return meets_any(part, taken.names); };
        if (strict && (meets_any(place, taken.leaders) || std::ranges::any_of(leader, crosses))) {
          continue;
        }
        return true;
      }
    }
    return false;
  }

  /// Each label next to one of its line's points.
  void name_at_points(const std::vector<const PlotSeries*>& lines) {
    Taken taken{marks_, {}, {}};
    for (const PlotSeries* const line : lines) {
      const PlotSeries& s = *line;
      Point of;
      Box place{};
      if (!find_place(s, taken, true, of, place) && !find_place(s, taken, false, of, place)) {
        if (!last_of(s, of)) continue;  // it has no point
        place = {of.first + 8, of.second - 7, of.first + 8 + text_width(s.label), of.second + 7};
      }
      const Point end = end_of_leader(of, place);
      if (end != of) {
        svg_ += "<path class=\"s-" + s.system +
                "\" stroke=\"currentColor\" stroke-opacity=\".5\" d=\"M" + short_number(of.first) +
                " " + short_number(of.second) + "L" + short_number(end.first) + " " +
                short_number(end.second) + "\"/>\n";
        add_boxes(taken.leaders, of, end);
      }
      taken.names.push_back(place);
      put_name(s, place.left, (place.top + place.bottom) / 2);
    }
  }

  const SvgPlot& plot_;
  LogScale x_, y_;
  double width_ = 0;
  std::vector<Key> keys_;
  std::string svg_;
  std::vector<Box> marks_;  // where no name is to be
};

}  // namespace detail

/// The picture. Nothing in it is fetched.
inline std::string svg_text(const SvgPlot& plot) { return detail::PlotWriter(plot).text(); }

}  // namespace bench
