// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED LINK fovea_test_cases)
// The trials of the fuzzer of operators, with bytes from a seeded generator: the same in every run.
#include "fuzz/operators.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_operators {

TEST(DrawnOperators, MatchTheirOracles) { each_drawn(600, 1, try_operator); }

/// 5023: gradients of joint maps, whose gauge did not count their roundings. 6596: that of a bias
/// of one number, which is 0, where the oracle had what its own roundings left. 16814: the same of
/// queries whose keys are the same. 14277: a soft cap that is flat in float, but not in double.
TEST(DrawnOperators, PastFailuresPass) { these_drawn({5023, 6596, 14277, 16814}, 1, try_operator); }

/// The corpus of libFuzzer: inputs that reach different code.
TEST(DrawnOperators, TheCorpusPasses) { each_kept("operators", 50, try_operator); }

}  // namespace fovea_test::fuzz_operators
