// SPDX-License-Identifier: MIT
/// \file
/// Plots on logarithmic axes as SVG, which needs no program to be drawn: each line has its name
/// beside it, and the picture follows the reader's choice of light or dark paper. Test:
/// tests/bench/io/svg_plot_test.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/io/system_styles.hpp"

namespace bench {

/// What is drawn of a system: marks, and a line between them.
struct PlotSeries {
  std::string label;
  std::string system;
  std::vector<std::pair<double, double>> points;  ///< positive; others are left out
  bool dashed = false;                            ///< a further variant of its system
  bool thick = false;                             ///< the best set
  bool faint = false;                             ///< of another run: dotted, without a name
};

struct PlotAxis {
  std::string label;
  bool bytes = false;              ///< ticks are KiB, MiB, ...
  std::vector<double> ticks = {};  ///< none: powers of 10, or of 4 for bytes
};

struct SvgPlot {
  std::string file;  ///< without extension
  std::string title;
  std::string subtitle;
  PlotAxis x, y;
  std::vector<PlotSeries> series = {};
  /// Whether names stand in a column at the right end; otherwise each beside its last point.
  bool names_in_column = true;
};

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

/// "12.3" for a place in pixels, "0.0042" for a tick.
inline std::string short_number(double x, const char* format = "%.1f") {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), format, x);
  return text.data();
}

/// The values of an axis, and where they stand.
class LogScale {
 public:
  LogScale(double low, double high, double from, double to)
      : low_(std::log(low)), high_(std::log(high)), from_(from), to_(to) {}
  double at(double value) const {
    return from_ + (std::log(value) - low_) / (high_ - low_) * (to_ - from_);
  }
  bool holds(double value) const {
    return std::log(value) >= low_ - 1e-9 && std::log(value) <= high_ + 1e-9;
  }
  double decades() const { return (high_ - low_) / std::log(10.0); }

 private:
  double low_, high_, from_, to_;
};

inline std::string tick_text(double value, bool bytes) {
  if (!bytes) return short_number(value, "%g");
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return short_number(value, "%g") + " " + units[unit];
}

inline std::vector<double> ticks_of(const PlotAxis& axis, const LogScale& scale) {
  std::vector<double> ticks = axis.ticks;
  if (ticks.empty() && axis.bytes) {
    for (int power = 0; power < 50; power += 2) ticks.push_back(std::exp2(power));
  } else if (ticks.empty()) {
    // 1, 2 and 5 of each decade where there are few.
    for (int power = -12; power <= 12; ++power) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        if (digit == 1 || scale.decades() < 2.5) ticks.push_back(digit * std::pow(10.0, power));
      }
    }
  }
  std::erase_if(ticks, [&](double tick) { return !scale.holds(tick); });
  return ticks;
}

/// Where something stands in a picture.
struct Box {
  double left, top, right, bottom;
  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

inline double text_width(std::string_view text) { return 7.0 * static_cast<double>(text.size()); }

/// Draws one plot.
class PlotWriter {
 public:
  static constexpr double kPlotWidth = 640, kPlotHeight = 480;
  static constexpr double kLeft = 86, kTop = 74, kBottom = 58, kNameHeight = 16;

  explicit PlotWriter(const SvgPlot& plot)
      : plot_(plot),
        x_(scale(0, kLeft, kLeft + kPlotWidth, 1.06)),
        y_(scale(1, kTop + kPlotHeight, kTop, 1.25)) {
    double names = 20;
    for (const PlotSeries& s : plot.series) {
      if (!s.faint) names = std::max(names, text_width(s.label) + 40);
    }
    width_ = kLeft + kPlotWidth + (plot.names_in_column ? names : 24);
  }

  std::string text() {
    svg_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + short_number(width_) + " " +
           short_number(kTop + kPlotHeight + kBottom) + "\" width=\"" + short_number(width_) +
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
    return svg_ + "</svg>\n";
  }

 private:
  using Point = std::pair<double, double>;

  static bool is_drawn(const Point& p) { return p.first > 0 && p.second > 0; }

  /// Around all values of one coordinate.
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
    return {low / margin, high * margin, from, to};
  }

  std::string style_sheet() const {
    std::set<std::string> systems;
    for (const PlotSeries& s : plot_.series) systems.insert(s.system);
    std::string light =
        ".paper{fill:#fff}.ink{fill:#1b1b1b}.soft{fill:#555}.grid{stroke:#dedede}"
        ".name{stroke:#fff;stroke-width:3.5px;paint-order:stroke}";
    std::string dark =
        ".paper{fill:#14171a}.ink{fill:#ececec}.soft{fill:#a5a5a5}"
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
    svg_ += "<polyline points=\"" + line + "\" fill=\"none\" stroke=\"currentColor\"" +
            (s.thick ? " stroke-width=\"5\" stroke-opacity=\".45\" stroke-linejoin=\"round\""
                     : " stroke-width=\"1.8\"") +
            (s.faint    ? " stroke-dasharray=\"1.5 3\""
             : s.dashed ? " stroke-dasharray=\"5 4\""
                        : "") +
            "/></g>\n";
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

  /// Names in a column, as near to the ends of their lines as they have room.
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

  /// Where a name may stand, from its point on: near places first.
  static std::vector<Point> places_around(double width) {
    std::vector<Point> places = {{8, 0}, {-8 - width, 0}};
    for (int ring = 1; ring < 9; ++ring) {
      for (const double up : {-14.0 * ring, 14.0 * ring}) {
        for (const double left : {-width / 2, 6.0, -6 - width}) places.emplace_back(left, up);
      }
    }
    return places;
  }

  /// Each name beside one of the points of its line, where no other name and no mark is.
  void name_at_points(const std::vector<const PlotSeries*>& lines) {
    const double right = plot_.names_in_column ? kLeft + kPlotWidth : width_;
    std::vector<Box> taken = marks_;
    for (const PlotSeries* const line : lines) {
      const PlotSeries& s = *line;
      const double width = text_width(s.label);
      Box best{};
      Point of_best;
      bool found = false;
      for (auto p = s.points.rbegin(); p != s.points.rend() && !found; ++p) {
        if (!is_drawn(*p)) continue;
        const double x = x_.at(p->first);
        const double y = y_.at(p->second);
        for (const Point& to : places_around(width)) {
          const Box box{x + to.first, y + to.second - 7, x + to.first + width, y + to.second + 7};
          const bool inside = box.left >= kLeft && box.right <= right && box.top >= kTop - 8 &&
                              box.bottom <= kTop + kPlotHeight;
          const bool is_free = std::none_of(taken.begin(), taken.end(),
                                            [&](const Box& other) { return box.meets(other); });
          if (best.right != 0 && !(inside && is_free)) continue;
          best = box;
          of_best = {x, y};
          if (inside && is_free) {
            found = true;
            break;
          }
        }
      }
      if (best.right == 0) continue;  // it has no point
      const double middle = (best.top + best.bottom) / 2;
      if (std::abs(middle - of_best.second) > 20) {
        const double near = std::clamp(of_best.first, best.left, best.right);
        svg_ += "<path class=\"s-" + s.system +
                "\" stroke=\"currentColor\" stroke-opacity=\".5\" " + "d=\"M" +
                short_number(of_best.first) + " " + short_number(of_best.second) + "L" +
                short_number(near) + " " +
                short_number(middle < of_best.second ? best.bottom : best.top) + "\"/>\n";
      }
      taken.push_back(best);
      put_name(s, best.left, middle);
    }
  }

  const SvgPlot& plot_;
  LogScale x_, y_;
  double width_ = 0;
  std::string svg_;
  std::vector<Box> marks_;
};

}  // namespace detail

/// The picture. Nothing in it is fetched.
inline std::string svg_text(const SvgPlot& plot) { return detail::PlotWriter(plot).text(); }

}  // namespace bench
