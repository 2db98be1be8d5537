// SPDX-License-Identifier: MIT
/// \file
/// A problem as a decoder is given it, some tokens at a time.
#pragma once

#include "attention/problem.hpp"

namespace fovea_test {

/// The sizes of a decoder for tensors of this shape.
inline fovea::DecoderShape decoder_shape(const AttentionShape& s) {
  return {.batch = s.batch,
          .query_heads = s.query_heads,
          .key_heads = s.key_heads,
          .width = s.width,
          .value_width = s.value_width};
}

/// The inputs of rows [row, row + rows) when tokens [first_key, row + rows) are given.
template <class T>
AllInputs<T> rows_with_keys(const AllInputs<T>& in, Index row, Index rows, Index first_key) {
  AllInputs<T> part = part_of(in, row, rows, 0, row + rows);
  part.k = cut(in.k, 2, first_key, row + rows - first_key);
  part.v = cut(in.v, 2, first_key, row + rows - first_key);
  if (!in.beta.empty()) part.beta = cut(in.beta, 2, first_key, row + rows - first_key);
  return part;
}

}  // namespace fovea_test
