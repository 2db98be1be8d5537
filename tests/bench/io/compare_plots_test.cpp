// SPDX-License-Identifier: MIT
// The lines of the plots: which rows are in which, and in what colours.
#define FOVEA_BENCH_FLAGS "of a test"
#include "bench/io/compare_plots.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/io/compare_against.hpp"

namespace fovea_test::bench_io_compare_plots {

using bench::Comparison;
using bench::Index;
using bench::Pass;
using bench::PlotSeries;
using bench::Row;

Row row(const char* op, const char* label, Index n, double seconds, Pass pass = Pass::forward) {
  Row made;
  made.names = {.op = op, .label = label, .pass = pass};
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

TEST(Plots, HaveALineForEachLabelWithItsRows) {
  const auto plots = bench::compare_plots();
  const std::vector<PlotSeries> forward = bench::series_of(comparison().rows, plots[0]);
  ASSERT_EQ(forward.size(), 3u);
  EXPECT_EQ(forward[0].label, "full");
  EXPECT_EQ(forward[0].points, (std::vector<std::pair<double, double>>{{512, 2}, {1024, 2}}));
  EXPECT_FALSE(forward[0].dashed);
  EXPECT_TRUE(forward[1].dashed);  // a second variant of full attention
  EXPECT_EQ(forward[2].points.size(), 1u);
  const std::vector<PlotSeries> steps = bench::series_of(comparison().rows, plots[3]);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].label, "strided, decoding");
  EXPECT_TRUE(steps[0].dashed);
  EXPECT_EQ(steps[0].points[1].second, 1024 * 1024);
}

TEST(Plots, AreWrittenWhereThereIsALine) {
  Comparison run = comparison();
  std::erase_if(run.rows, [](const Row& r) { return r.names.pass == Pass::decode; });
  const auto drawn = bench::draw_plots(run, bench::compare_plots(), testing::TempDir());
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_EQ(drawn[0].file, "time");
  const std::string svg = bench::read_file(testing::TempDir() + "/time.svg");
  for (const char* label : {">full<", ">full, causal<", ">local<", ">512<", ">1024<"}) {
    EXPECT_NE(svg.find(label), svg.npos) << label;
  }
}

TEST(Plots, AnotherRunLiesBehindWhatBothMeasured) {
  const auto plots = bench::compare_plots();
  bench::SvgPlot picture = bench::picture_of(comparison(), plots[0]);
  bench::OtherRun other{
      "other.json", "A <machine>", {row("local", "local", 512, 0.1), row("fmm", "fmm", 512, 0.1)}};
  bench::lay_over(picture, other, plots[0]);
  ASSERT_EQ(picture.series.size(), 4u);
  EXPECT_TRUE(picture.series[0].faint);
  EXPECT_EQ(picture.series[0].label, "local");
  const std::string svg = bench::svg_text(picture);
  EXPECT_NE(svg.find("dotted: A &lt;machine&gt; (other.json)"), svg.npos);
  other.rows.erase(other.rows.begin());
  bench::SvgPlot alone = bench::picture_of(comparison(), plots[0]);
  bench::lay_over(alone, other, plots[0]);
  EXPECT_EQ(alone.series.size(), 3u);
  EXPECT_EQ(alone.subtitle.find("dotted"), std::string::npos);
}

}  // namespace fovea_test::bench_io_compare_plots
