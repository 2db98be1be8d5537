// SPDX-License-Identifier: MIT
/// \file
/// The interface of a translation unit of the mixed program: its own copy of the operators,
/// compiled with its own flags. No type of fovea is in this interface.
#pragma once

#include <cstddef>

namespace mixed {

constexpr std::ptrdiff_t kHeads = 3;
constexpr std::ptrdiff_t kRows = 333;
constexpr std::ptrdiff_t kWidth = 37;
constexpr std::ptrdiff_t kSize = kHeads * kRows * kWidth;

/// Attention of one problem [1, kHeads, kRows, kWidth]: full causal, then a band, at most at
/// `level` (1, 3 or 4). Returns the level at which it ran.
using Attend = int (*)(int level, const float* q, const float* k, const float* v, float* full,
                       float* band);

struct Unit {
  const char* name;
  Attend attend;
};

}  // namespace mixed
