// SPDX-License-Identifier: MIT
/// \file
/// Every choice of which of the sizes of a call are 0.
#pragma once

#include "fovea/attention/call/shapes.hpp"

namespace fovea_test {

using fovea::AttentionShape;

/// Calls f with each of the 128 choices of which of seven sizes are 0; the others are as given.
template <class F>
void for_each_zero_sizes(const AttentionShape& whole, F&& f) {
  for (int zeros = 0; zeros < 128; ++zeros) {
    AttentionShape shape = whole;
    int bit = 0;
    for (fovea::Index* size : {&shape.batch, &shape.query_heads, &shape.key_heads, &shape.queries,
                               &shape.keys, &shape.width, &shape.value_width}) {
      if ((zeros >> bit++ & 1) != 0) *size = 0;
    }
    f(shape);
  }
}

}  // namespace fovea_test
