// SPDX-License-Identifier: MIT
/// \file
/// Chooses the cases of one test file among those of a program that holds several.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace fovea_test {

/// The patterns that find the cases of tests/`stem`_test.cpp, one for each; empty if there is none.
inline std::string cases_of_file(std::string_view stem) {
  std::string ending = "/";
  ending.append(stem).append("_test.cpp");
  std::string patterns;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int i = 0; i < suite.total_test_count(); ++i) {
      const testing::TestInfo& info = *suite.GetTestInfo(i);
      if (!std::string_view(info.file()).ends_with(ending)) continue;
      patterns.append(suite.name()).append(".").append(info.name()).append(":");
    }
  }
  return patterns;
}

/// Narrows GoogleTest's filter to the file that the first argument names, if there is one. What the
/// filter excludes stays excluded; a filter that names cases itself is left as it is.
/// \return false, and says so, where the file has no case in this program
inline bool choose_cases(int argc, char** argv) {
  if (argc < 2) return true;
  const std::string patterns = cases_of_file(argv[1]);
  if (patterns.empty()) {
    std::fprintf(stderr, "%s: no case of %s_test.cpp\n", argv[0], argv[1]);
    return false;
  }
  const std::string filter = GTEST_FLAG_GET(filter);
  const std::size_t excluded = filter.find('-');
  const std::string_view included = std::string_view(filter).substr(0, excluded);
  if (!included.empty() && included != "*") return true;
  GTEST_FLAG_SET(filter, patterns + (excluded == std::string::npos ? "" : filter.substr(excluded)));
  return true;
}

}  // namespace fovea_test
