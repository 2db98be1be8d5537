// SPDX-License-Identifier: MIT
/// \file
/// Runs something with all memory between fences.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "support/fences.hpp"
#include "support/memory.hpp"

namespace fovea_test {

/// Calls f() with fences on either side of its memory, filled with NaN and with a large number.
template <class F>
void between_fences(F&& f) {
  const std::ptrdiff_t pieces = FencedHeap::pieces();
  const std::ptrdiff_t changed = FencedHeap::changed();
  for (const auto& [fence, fill] :
       {std::pair{Fence::behind, 0xff}, std::pair{Fence::before, 0x7b}}) {
    const FencedHeap fences(fence, static_cast<unsigned char>(fill));
    f();
  }
  EXPECT_GT(FencedHeap::pieces(), pieces);
  EXPECT_EQ(FencedHeap::changed(), changed) << "bytes beside pieces";
}

}  // namespace fovea_test
