// SPDX-License-Identifier: MIT
// The lines of the plots: which rows are in which, and in what colours.
#include "bench/io/compare_plots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/compare_against.hpp"
#include "bench/io/read_file.hpp"

namespace fovea_test::bench_io_compare_plots {

using bench::Comparison;
using bench::Index;
using bench::Pass;
using bench::PlotSeries;
using bench::Row;

Row row(const char* op, const char* label, Index n, double seconds, Pass pass = Pass::forward) {
  Row made;
  made.names = {.op = op, .label = label, .pass = pass};
  made.causal = pass == Pass::decode || std::string(label).ends_with(", causal");
  made.n = n;
  made.seconds = seconds;
  made.workspace_bytes = 1024 * n;
  return made;
}

Comparison comparison() {
  Comparison run;
  run.arguments.lengths = {512, 1024};
  for (const Index n : run.arguments.lengths) {
    run.rows.push_back(row("full", "full", n, 0.002));
    run.rows.push_back(row("full", "full, causal", n, 0.001));
    run.rows.push_back(row("strided", "strided, decoding", n, 0.0001, Pass::decode));
    run.rows.push_back(row("local", "local", n, 0.0005));
    run.rows.back().skipped = n == 1024 ? "too long" : "";
  }
  return run;
}

const bench::Plot& plot(const std::vector<bench::Plot>& plots, const std::string& file) {
  return *std::ranges::find(plots, file, &bench::Plot::file);
}

TEST(Plots, HaveOneLinePerLabel) {
  const auto plots = bench::compare_plots();
  Comparison run = comparison();
  run.rows.push_back(row("full", "full, wide", 512, 0.004));
  const std::vector<PlotSeries> forward =
      bench::series_of(run.rows, plot(plots, "time_not_causal"));
  ASSERT_EQ(forward.size(), 3u);
  EXPECT_EQ(forward[0].label, "full");
  EXPECT_EQ(forward[0].points, (std::vector<std::pair<double, double>>{{512, 2}, {1024, 2}}));
  EXPECT_FALSE(forward[0].dashed);
  EXPECT_EQ(forward[1].points.size(), 1u);
  EXPECT_TRUE(forward[2].dashed);  // a second variant of full attention
}

/// Whatever is dashed, it is not for being causal: each picture has one kind alone.
TEST(Plots, SeparateCausalAndNonCausal) {
  const auto plots = bench::compare_plots();
  const auto causal = bench::series_of(comparison().rows, plot(plots, "time_causal"));
  ASSERT_EQ(causal.size(), 1u);
  EXPECT_EQ(causal[0].label, "full, causal");
  EXPECT_FALSE(causal[0].dashed);
  const auto steps = bench::series_of(comparison().rows, plot(plots, "memory_decoding"));
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].label, "strided, decoding");
  EXPECT_FALSE(steps[0].dashed);
  EXPECT_EQ(steps[0].points[1].second, 1024 * 1024);
  for (const bench::Plot& one : plots) {
    EXPECT_EQ(one.causal, !one.file.ends_with("not_causal")) << one.file;
    for (const PlotSeries& line : bench::series_of(comparison().rows, one)) {
      EXPECT_EQ(line.label.ends_with(", causal") || line.label.ends_with(", decoding"), one.causal);
    }
  }
}

TEST(Plots, OfDistancesMarkEachOperatorAndTheFastest) {
  Comparison run = comparison();
  EXPECT_TRUE(bench::distance_picture(run, false).series.empty());
  const double distances[] = {0, 0, 0.5, 0.25};
  for (std::size_t r = 0; r < run.rows.size(); ++r) run.rows[r].difference = distances[r % 4];
  run.rows.push_back(row("fmm", "fmm", 512, 0.001));
  run.rows.back().difference = 0.5;
  const bench::SvgPlot picture = bench::distance_picture(run, false);
  EXPECT_EQ(picture.file, "distance_not_causal");
  EXPECT_EQ(picture.subtitle.find("N = 1024, "), 0u);  // local attention has not run there
  EXPECT_TRUE(picture.series.empty());
  std::erase_if(run.rows, [](const Row& r) { return r.n == 1024; });
  const bench::SvgPlot drawn = bench::distance_picture(run, false);
  ASSERT_EQ(drawn.series.size(), 3u);
  EXPECT_TRUE(drawn.series[0].thick);
  // Full attention has no place on the axis, and fmm is slower and farther.
  EXPECT_EQ(drawn.series[0].points, (std::vector<std::pair<double, double>>{{0.5, 0.25}}));
  EXPECT_EQ(drawn.series[2].label, "fmm");
  EXPECT_NE(bench::svg_text(drawn).find(">fastest within each distance<"), std::string::npos);
}

TEST(Plots, AreWrittenIfThereIsALine) {
  Comparison run = comparison();
  std::erase_if(run.rows, [](const Row& r) { return r.names.pass == Pass::decode; });
  const auto drawn = bench::draw_plots(run, bench::compare_plots(), testing::TempDir());
  ASSERT_EQ(drawn.size(), 4u);
  EXPECT_EQ(drawn[1].file, "time_not_causal");
  const std::string svg = bench::read_file(testing::TempDir() + "/time_not_causal.svg");
  for (const char* label : {">full<", ">local<", ">512<", ">1024<"}) {
    EXPECT_NE(svg.find(label), svg.npos) << label;
  }
}

TEST(Plots, AnotherRunIsDrawnBehind) {
  const auto plots = bench::compare_plots();
  const bench::Plot& shown = plot(plots, "time_not_causal");
  bench::SvgPlot picture = bench::picture_of(comparison(), shown);
  bench::OtherRun other{
      "other.json", "A <machine>", {row("local", "local", 512, 0.1), row("fmm", "fmm", 512, 0.1)}};
  bench::lay_over(picture, other, shown);
  ASSERT_EQ(picture.series.size(), 3u);
  EXPECT_TRUE(picture.series[0].faint);
  EXPECT_EQ(picture.series[0].label, "local");
  const std::string svg = bench::svg_text(picture);
  EXPECT_NE(svg.find("dotted: A &lt;machine&gt; (other.json)"), svg.npos);
  other.rows.erase(other.rows.begin());
  bench::SvgPlot alone = bench::picture_of(comparison(), shown);
  bench::lay_over(alone, other, shown);
  EXPECT_EQ(alone.series.size(), 2u);
  EXPECT_EQ(alone.subtitle.find("dotted"), std::string::npos);
}

}  // namespace fovea_test::bench_io_compare_plots
