// SPDX-License-Identifier: MIT
/// \file
/// Files of queries, keys and values, for tests of programs that read them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fovea/io/npy.hpp"
#include "support/index.hpp"

namespace fovea_test {

/// A .npy file of float32 [heads, rows, width].
inline void write_heads(const std::string& file, Index heads, Index width,
                        const std::vector<float>& values) {
  const Index rows = std::ssize(values) / (heads * width);
  fovea::write_npy(file, {.dtype = fovea::Dtype::f32,
                          .shape = {heads, rows, width},
                          .bytes = std::as_bytes(std::span<const float>(values))});
}

}  // namespace fovea_test
