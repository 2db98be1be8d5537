// SPDX-License-Identifier: MIT
/// \file
/// Selects the cases of one test file in a program with several.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea_test {

/// Calls f(info) for each case of this program.
template <class F>
void for_each_case(F&& f) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int i = 0; i < suite.total_test_count(); ++i) f(*suite.GetTestInfo(i));
  }
}

/// The patterns that find the cases of tests/`stem`_test.cpp, one for each; empty if there is none.
inline std::string cases_of_file(std::string_view stem) {
  std::string ending = "/";
  ending.append(stem).append("_test.cpp");
  std::string patterns;
  for_each_case([&](const testing::TestInfo& info) {
    if (!std::string_view(info.file()).ends_with(ending)) return;
    patterns.append(info.test_suite_name()).append(".").append(info.name()).append(":");
  });
  return patterns;
}

/// A name that is in the list twice; empty if there is none.
inline std::string repeated(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  const auto found = std::adjacent_find(names.begin(), names.end());
  return found == names.end() ? std::string() : *found;
}

/// A case that this program has twice, as if two files instantiate one fixture; empty if there is
/// none.
inline std::string repeated_case() {
  std::vector<std::string> names;
  for_each_case([&](const testing::TestInfo& info) {
    names.push_back(std::string(info.test_suite_name()) + "." + info.name());
  });
  return repeated(std::move(names));
}

/// A case outside of _test.cpp files, so that no stem would run it; null if there is none.
inline const testing::TestInfo* case_without_file() {
  const testing::TestInfo* found = nullptr;
  for_each_case([&](const testing::TestInfo& info) {
    if (!std::string_view(info.file()).ends_with("_test.cpp")) found = &info;
  });
  return found;
}

/// Narrows GoogleTest's filter to the file that the first argument names, if there is one. What the
/// filter excludes stays excluded; a filter that names cases itself is left as it is.
/// \return false, with a message, if the file has no case in this program, a case has no file, or
/// two have one name
inline bool choose_cases(int argc, char** argv) {
  if (argc < 2) return true;
  if (const testing::TestInfo* const info = case_without_file(); info != nullptr) {
    std::fprintf(stderr, "%s: %s.%s stands in %s, not in a _test.cpp\n", argv[0],
                 info->test_suite_name(), info->name(), info->file());
    return false;
  }
  if (const std::string name = repeated_case(); !name.empty()) {
    std::fprintf(stderr, "%s: two cases are called %s\n", argv[0], name.c_str());
    return false;
  }
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
