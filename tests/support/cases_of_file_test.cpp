// SPDX-License-Identifier: MIT
#include "support/cases_of_file.hpp"

#include <gtest/gtest.h>

namespace fovea_test::support_cases_of_file {

TEST(CasesOfFile, MatchTheStem) {
  EXPECT_EQ(cases_of_file("support/cases_of_file"),
            "CasesOfFile.MatchTheStem:CasesOfFile.AreInTests:CasesOfFile.HaveNamesOfTheirOwn:");
  EXPECT_EQ(cases_of_file("cases_of_file"), cases_of_file("support/cases_of_file"));
  EXPECT_EQ(cases_of_file("of_file"), "");
  EXPECT_EQ(cases_of_file("support/compare"), "");
}

TEST(CasesOfFile, AreInTests) { EXPECT_EQ(case_without_file(), nullptr); }

TEST(CasesOfFile, HaveNamesOfTheirOwn) {
  EXPECT_EQ(repeated_case(), "");
  EXPECT_EQ(repeated({}), "");
  EXPECT_EQ(repeated({"A.a", "B.a", "A.b"}), "");
  EXPECT_EQ(repeated({"A.a", "B.a", "A.b", "B.a"}), "B.a");
}

}  // namespace fovea_test::support_cases_of_file
