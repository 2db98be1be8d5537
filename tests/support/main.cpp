// SPDX-License-Identifier: MIT
/// \file
/// The main function of tests. Several test files may be one program: `program attention/packed`
/// runs the cases of attention/packed_test.cpp alone, of those that GoogleTest's filter lets pass.
#include <gtest/gtest.h>

#include "support/cases_of_file.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return fovea_test::choose_cases(argc, argv) ? RUN_ALL_TESTS() : 1;
}
