// SPDX-License-Identifier: MIT
/// \file
/// The tables of worst errors keep the worst (NaN above all), and are written as lines.
#include "support/exactness.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "support/levels.hpp"
#include "support/scratch_folder.hpp"

namespace fovea_test::support_exactness {

/// The file that a table writes.
std::string written(Exactness& table) {
  const ScratchFolder folder;
  ::setenv("FOVEA_EXACTNESS", (folder / "").c_str(), 1);
  table.TearDown();
  ::unsetenv("FOVEA_EXACTNESS");
  std::ifstream file(folder / (std::to_string(::getpid()) + ".tsv"));
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ExactnessTable, ContainsTheWorstOfEachTypeAndLevel) {
  Exactness table;
  const AtLevel baseline(IsaLevel::baseline);
  const std::string level = fovea::name(fovea::isa_level());
  table.error<float>("ratio", {"full", "out"}, 1.5, 10);
  table.error<float>("ratio", {"full", "out"}, 0.5, 5);
  table.error<double>("ratio", {"full", "out"}, 2, 1);
  EXPECT_EQ(written(table), "ratio\tfull\tout\tdouble\t" + level +
                                "\t2\t1\nratio\tfull\tout\tfloat\t" + level + "\t1.5\t15\n");
}

TEST(ExactnessTable, NaNIsTheWorst) {
  Exactness table;
  for (const double worst : {1.0, std::numeric_limits<double>::quiet_NaN(), 2.0}) {
    table.error<float>("ulp", {"exp", "values"}, worst, 1);
  }
  EXPECT_NE(written(table).find("\tnan\t3\n"), std::string::npos);
}

TEST(ExactnessTable, CountsBitwiseComparisonsOfTheCurrentTest) {
  Exactness table;
  table.bits(3);
  table.bits(4);
  EXPECT_EQ(written(table), "bits\tCountsBitwiseComparisonsOfTheCurrentTest\t2\t7\n");
}

TEST(ExactnessTable, IsNotWrittenWithoutAName) {
  Exactness table;
  table.error<float>("ratio", {}, 1, 1);
  EXPECT_EQ(written(table), "");
}

}  // namespace fovea_test::support_exactness
