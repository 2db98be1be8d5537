// SPDX-License-Identifier: MIT
/// \file
/// Adapts trials with GoogleTest expectations to libFuzzer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

/// An expectation that fails ends the program, which is how libFuzzer learns of it.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  testing::InitGoogleTest(count, *arguments);
  testing::GTEST_FLAG(break_on_failure) = true;
  return 0;
}
