// SPDX-License-Identifier: MIT
/// \file
/// Heads from .npy files: [B, H, N, D], [H, N, D] or [N, D] of any type of floating point.
#pragma once

#include <string>
#include <vector>

#include "fovea/core/view.hpp"
#include "fovea/io/npy.hpp"

namespace bench {

using fovea::Index;

/// A tensor from a file, in row-major order and as float.
struct NpyTensor {
  fovea::Shape shape{};       ///< [B, H, N, D]; leading ones where the file has fewer dimensions
  std::vector<float> values;  ///< [B, H, N, D]
};

/// The heads of a stored tensor. \param file its name, for messages
/// \throws std::runtime_error "<file>: <what is wrong>"
inline NpyTensor heads_of(const fovea::StoredTensor& stored, const std::string& file) {
  const std::vector<Index>& extents = stored.shape;
  if (extents.size() < 2 || extents.size() > 4) {
    fovea::refuse_file(file, "it has " + std::to_string(extents.size()) +
                                 " dimensions; expected [B, H, N, D], [H, N, D] or [N, D]");
  }
  if (stored.size() == 0) fovea::refuse_file(file, "it has a dimension of 0");
  const std::string_view type = fovea::names_of(stored.dtype).npy;
  if (type.find('f') == std::string_view::npos) {
    fovea::refuse_file(file, "its type is '" + std::string(type) +
                                 "'; expected '<f2', '<f4' or '<f8', floating point");
  }
  NpyTensor heads{.shape = {1, 1, 1, 1}, .values = {}};
  std::copy(extents.begin(), extents.end(), heads.shape.end() - std::ssize(extents));
  heads.values.resize(static_cast<std::size_t>(stored.size()));
  stored.read(heads.values.data());
  return heads;
}

/// The heads in a .npy file. \throws std::runtime_error "<path>: <what is wrong>"
inline NpyTensor read_heads(const std::string& path) {
  return heads_of(fovea::read_npy(path).at("tensor"), path);
}

}  // namespace bench
