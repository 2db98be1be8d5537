// SPDX-License-Identifier: MIT
// Plots: every line has a label, labels do not overlap, and text is escaped.
#include "bench/io/svg_plot.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace fovea_test::bench_io_svg_plot {

using bench::PlotSeries;
using bench::SvgPlot;

struct Name {
  double x, y;
  std::string text;
};

/// The texts of one class prefix, with their places.
std::vector<Name> names_in(const std::string& svg) {
  std::vector<Name> names;
  for (std::size_t at = 0; (at = svg.find("<text x=\"", at)) != svg.npos; ++at) {
    const std::size_t end = svg.find("</text>", at);
    const std::string one = svg.substr(at, end - at);
    if (one.find("class=\"name ") == one.npos) continue;
    names.push_back({std::stod(one.substr(9)), std::stod(one.substr(one.find("y=\"") + 3)),
                     one.substr(one.rfind('>') + 1)});
  }
  return names;
}

SvgPlot plot_of(int lines, bool in_column) {
  SvgPlot plot{"p", "Time & <more>", "of a test", {.label = "N"}, {.label = "ms"}, {}, in_column};
  for (int i = 0; i < lines; ++i) {
    // Near to each other, and some of them the same.
    const double y = 1 + 0.01 * (i / 2);
    plot.series.push_back({"line " + std::to_string(i), "local", {{512, y}, {1024, 2 * y}}});
  }
  return plot;
}

TEST(SvgPlot, LabelsDoNotOverlap) {
  for (const bool in_column : {true, false}) {
    for (const int lines : {1, 2, 9, 26}) {
      const auto names = names_in(bench::svg_text(plot_of(lines, in_column)));
      ASSERT_EQ(names.size(), static_cast<std::size_t>(lines));
      if (!in_column && lines > 9) continue;  // there is no space around two points
      for (std::size_t i = 0; i < names.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          const bool apart =
              std::abs(names[i].y - names[j].y) > 12 || std::abs(names[i].x - names[j].x) > 40;
          EXPECT_TRUE(apart) << names[i].text << " and " << names[j].text;
        }
      }
    }
  }
}

TEST(SvgPlot, PlacesPointsByTheirValues) {
  const std::string svg = bench::svg_text(plot_of(1, true));
  const std::size_t at = svg.find("points=\"") + 8;
  const double x0 = std::stod(svg.substr(at));
  const double x1 = std::stod(svg.substr(svg.find(' ', at)));
  // From 512/1.06 to 1024 * 1.06 over 640 pixels from 86 on.
  const double whole = std::log(2 * 1.06 * 1.06);
  EXPECT_NEAR(x0, 86 + 640 * std::log(1.06) / whole, 0.06);
  EXPECT_NEAR(x1, 86 + 640 * std::log(2 * 1.06) / whole, 0.06);
}

TEST(SvgPlot, EscapesMarkupAndOmitsInvalidPoints) {
  SvgPlot plot = plot_of(1, true);
  plot.series.push_back({"<zero> & \"none\"", "full", {{512, 0}, {1024, 3}}});
  plot.series.push_back({"nothing", "full", {{512, -1}, {1024, std::nan("")}}});
  const std::string svg = bench::svg_text(plot);
  EXPECT_NE(svg.find("Time &amp; &lt;more&gt;"), svg.npos);
  EXPECT_NE(svg.find("&lt;zero&gt; &amp; &quot;none&quot;</text>"), svg.npos);
  EXPECT_EQ(svg.find(">nothing</text>"), svg.npos);
  EXPECT_EQ(svg.find("nan"), svg.npos);
  EXPECT_EQ(svg.find("inf"), svg.npos);
}

TEST(SvgPlot, IsValidWithoutLines) {
  SvgPlot plot = plot_of(0, true);
  EXPECT_EQ(bench::svg_text(plot).find("nan"), std::string::npos);
}

TEST(SvgPlot, TicksOfBytesHaveUnits) {
  SvgPlot plot = plot_of(1, true);
  plot.y.bytes = true;
  plot.series[0].points = {{512, 1024}, {1024, 1 << 22}};
  const std::string svg = bench::svg_text(plot);
  EXPECT_NE(svg.find(">1 KiB<"), svg.npos);
  EXPECT_NE(svg.find(">4 MiB<"), svg.npos);
}

TEST(SvgPlot, AFaintLineHasNoName) {
  SvgPlot plot = plot_of(2, true);
  plot.series[0].faint = true;
  EXPECT_EQ(names_in(bench::svg_text(plot)).size(), 1u);
}

/// The legend contains exactly the line styles in use.
TEST(SvgPlot, ExplainsLines) {
  SvgPlot plot = plot_of(2, true);
  plot.line = "an <operator>";
  const std::string plain = bench::svg_text(plot);
  EXPECT_NE(plain.find(">an &lt;operator&gt;<"), plain.npos);
  EXPECT_EQ(plain.find("dashes: "), plain.npos);
  EXPECT_EQ(plain.find("stroke-dasharray"), plain.npos);
  plot.series[0].dashed = true;
  plot.series.push_back({"best", "heads", {{512, 1}, {1024, 2}}});
  plot.series.back().thick = true;
  plot.thick = "the best";
  const std::string all = bench::svg_text(plot);
  EXPECT_NE(all.find(">dashes: a further variant of the one in that colour<"), all.npos);
  EXPECT_NE(all.find(">the best<"), all.npos);
  EXPECT_EQ(all.find("the other run"), all.npos);
}

/// Where all lines are single points, the legend has a mark alone.
TEST(SvgPlot, LegendsShowLineStyles) {
  SvgPlot plot = plot_of(2, false);
  const auto lines_in = [&] {
    const std::string svg = bench::svg_text(plot);
    const std::string key = svg.substr(svg.find("<g class=\"key\">"));
    EXPECT_NE(key.find("<circle"), key.npos);
    return key.find("<polyline") != key.npos;
  };
  EXPECT_TRUE(lines_in());
  for (PlotSeries& line : plot.series) line.points.pop_back();
  EXPECT_FALSE(lines_in());
}

/// A name that found its place far from its point has a line to it.
TEST(SvgPlot, LeaderLinesDoNotCrossLabels) {
  SvgPlot plot{"p", "", "", {.label = "ms"}, {.label = "distance"}, {}, false};
  plot.series.push_back({"far", "full", {{1, 1}}});
  plot.series.push_back({"near", "full", {{10, 10}}});
  for (int i = 0; i < 7; ++i) {
    plot.series.push_back(
        {"line " + std::to_string(i), "local", {{3 + 0.1 * (i % 5), 3 + 0.1 * i}}});
  }
  const std::string svg = bench::svg_text(plot);
  const std::vector<Name> names = names_in(svg);
  ASSERT_EQ(names.size(), 9u);
  int leaders = 0;
  const std::string begin = "stroke-opacity=\".5\" d=\"M";
  for (std::size_t at = 0; (at = svg.find(begin, at)) != svg.npos; ++leaders) {
    at += begin.size();
    double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
    ASSERT_EQ(std::sscanf(svg.c_str() + at, "%lf %lfL%lf %lf", &x0, &y0, &x1, &y1), 4);
    for (const Name& name : names) {
      for (double part = 0; part <= 1; part += 0.01) {
        const double x = x0 + part * (x1 - x0) - name.x;
        const double y = y0 + part * (y1 - y0) - name.y;
        const bool is_in =
            x > 0 && x < 7.0 * static_cast<double>(name.text.size()) && y > -10 && y < 1;
        EXPECT_FALSE(is_in) << name.text;
      }
    }
  }
  EXPECT_GT(leaders, 0);
}

TEST(SvgPlot, IsAsWideAsItsContent) {
  for (const bool is_subtitle : {true, false}) {
    SvgPlot plot = plot_of(1, false);
    const auto width = [&] {
      return std::stod(bench::svg_text(plot).substr(
          sizeof "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0"));
    };
    EXPECT_EQ(width(), 750);
    (is_subtitle ? plot.subtitle : plot.line) = std::string(150, 'x');
    EXPECT_GT(width(), 150 * 6.5);
  }
}

/// An axis with one or two ticks would not show its scale.
TEST(SvgPlot, NarrowAxesHaveTicksToo) {
  using Ticks = std::vector<double>;
  const auto ticks = [](double low, double high) {
    Ticks all = bench::detail::ticks_of({}, {low, high, 0, 1});
    for (double& tick : all) tick = std::round(tick * 1e6) / 1e6;
    return all;
  };
  EXPECT_EQ(ticks(2.16, 2.33), (Ticks{2.2, 2.25, 2.3}));
  EXPECT_EQ(ticks(2.4, 13), (Ticks{4, 6, 8, 10, 12}));
  EXPECT_EQ(ticks(1.15, 2.48), (Ticks{1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.4}));
  EXPECT_EQ(ticks(0.9, 5), (Ticks{1, 2, 5}));
  EXPECT_EQ(ticks(900, 1.1e6), (Ticks{1e3, 1e4, 1e5, 1e6}));
}

/// Relative luminance, as the Web Content Accessibility Guidelines have it.
double luminance(std::string_view colour) {
  double sum = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  for (std::size_t c = 0; c < 3; ++c) {
    const double x = std::stoi(std::string(colour.substr(1 + 2 * c, 2)), nullptr, 16) / 255.0;
    sum += weights[c] * (x <= 0.03928 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double contrast(std::string_view a, std::string_view b) {
  const double x = luminance(a);
  const double y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

TEST(SystemStyles, AreReadableOnLightAndDarkBackgrounds) {
  for (const bench::SystemStyle& style : bench::kSystemStyles) {
    EXPECT_GE(contrast(style.light, "#ffffff"), 3) << style.system;
    EXPECT_GE(contrast(style.dark, "#14171a"), 3) << style.system;
  }
}

TEST(SystemStyles, DifferInColourOrMark) {
  // Systems alone: kinds of heads and policies are not in the same plots.
  for (std::size_t i = 0; bench::kSystemStyles[i].system != "heads"; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const bench::SystemStyle& a = bench::kSystemStyles[i];
      const bench::SystemStyle& b = bench::kSystemStyles[j];
      EXPECT_NE(a.system, b.system);
      EXPECT_NE(a.light, b.light);
      EXPECT_NE(a.dark, b.dark);
    }
  }
}

TEST(SystemStyles, AreFoundByTheBeginningOfALabel) {
  EXPECT_EQ(bench::system_of("Smart Bird, K = 20"), "smart_bird");
  EXPECT_EQ(bench::system_of("Transformer, full"), "full");
  EXPECT_EQ(bench::system_of("Transformer, N x N kept"), "naive_eigen");
  EXPECT_EQ(bench::system_of("BigBird"), "bigbird");
  EXPECT_EQ(bench::style_of("unknown").system, "unknown");
}

}  // namespace fovea_test::bench_io_svg_plot
