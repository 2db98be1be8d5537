// SPDX-License-Identifier: MIT
// What the fuzzer of operators calls, led by a generator: the same in every run.
#include "fuzz/operators.hpp"

#include <gtest/gtest.h>

namespace fovea_test {
namespace {

TEST(DrawnOperators, DoAsTheirOraclesDo) { each_drawn(600, 1, try_operator); }

/// 5023: gradients of joint maps, whose gauge did not count their roundings.
TEST(DrawnOperators, WhatWasFoundIsMended) { these_drawn({5023}, 1, try_operator); }

}  // namespace
}  // namespace fovea_test
