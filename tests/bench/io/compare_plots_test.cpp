// SPDX-License-Identifier: MIT
// The scripts of the plots: the plot takes most of the picture, and the key all of its entries.
#define FOVEA_BENCH_FLAGS "of a test"
#include "bench/io/compare_plots.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using bench::Comparison;
using bench::Index;
using bench::PictureLayout;
using bench::Row;

/// The number behind each occurrence of a text in a script.
std::vector<double> numbers_after(const std::string& script, const std::string& text) {
  std::vector<double> numbers;
  for (std::size_t at = 0; (at = script.find(text, at)) != script.npos;) {
    at += text.size();
    numbers.push_back(std::stod(script.substr(at)));
  }
  return numbers;
}

std::size_t count(const std::string& script, const std::string& text) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = script.find(text, at)) != script.npos; at += text.size()) ++found;
  return found;
}

/// Every third operator is as fast as the one before it.
bool is_hidden(int n) { return n % 3 == 2; }

/// So many operators at two lengths.
std::string script_of(int operators) {
  Comparison run;
  run.arguments.lengths = {1024, 4096};
  for (int n = 0; n < operators; ++n) {
    for (const Index length : run.arguments.lengths) {
      Row row;
      row.names = {.op = "op" + std::to_string(n), .label = "label, no. " + std::to_string(n)};
      row.n = length;
      row.seconds = is_hidden(n) ? n : n + 1;
      row.workspace_bytes = Index{1} << (10 + n);
      run.rows.push_back(row);
    }
  }
  return gnuplot_script(run, bench::compare_plots(), "out");
}

TEST(Plots, TheKeyDoesNotCrushThePlot) {
  for (const int operators : {1, 5, 18, 40}) {
    const std::string script = script_of(operators);
    const auto left = numbers_after(script, "set lmargin at screen ");
    const auto right = numbers_after(script, "set rmargin at screen ");
    const auto top = numbers_after(script, "set tmargin at screen ");
    const auto bottom = numbers_after(script, "set bmargin at screen ");
    const auto rows = numbers_after(script, " maxrows ");
    ASSERT_EQ(left.size(), 4u) << script;  // time and memory, SVG and PNG
    for (std::size_t i = 0; i < left.size(); ++i) {
      EXPECT_GE(right[i] - left[i], 0.7);
      EXPECT_GT(left[i], 0);
      EXPECT_LT(right[i], 1);
      EXPECT_LT(top[i], 1);
      // The key stands below the plot and its axis, within the picture.
      const double pixel = (top[i] - bottom[i]) / PictureLayout::kPlot;
      EXPECT_GE(bottom[i], (PictureLayout::kBelow + rows[i] * PictureLayout::kKeyRow) * pixel);
    }
  }
}

TEST(Plots, TheKeyNamesEveryLine) {
  const std::string script = script_of(18);
  for (int n = 0; n < 18; ++n) {
    const std::string label = "label, no. " + std::to_string(n) + "'";
    EXPECT_EQ(count(script, "title '" + label), is_hidden(n) ? 2u : 4u) << script;
    EXPECT_EQ(count(script, "title 'same: " + label), is_hidden(n) ? 2u : 0u) << script;
  }
}

TEST(PictureLayout, HasColumnsForAllEntries) {
  for (const std::size_t entries : {1u, 2u, 5u, 9u, 18u, 40u}) {
    for (const std::size_t letters : {1u, 10u, 28u, 60u, 200u}) {
      const PictureLayout layout(std::vector<std::string>(entries, std::string(letters, 'x')));
      const int places = layout.key_rows() * layout.key_columns();
      EXPECT_GE(places, static_cast<int>(entries));
      EXPECT_LT(places - layout.key_rows(), static_cast<int>(entries));  // no column is empty
      const int width = PictureLayout::kWidth - PictureLayout::kLeft;
      if (layout.key_columns() > 1) {
        EXPECT_GE(width / layout.key_columns(), 60 + 7 * static_cast<int>(letters));
      }
    }
  }
}

}  // namespace
