// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the kernels that divide one causal stream of sums (linear.hpp) among threads. Their
/// bodies are segments.inl.hpp, compiled once per instruction-set level; table.hpp selects the
/// level.
///
/// Tokens are processed in batches of segments. First the chunks of each segment are summed from 0,
/// in any segment order; then the starts of segments are computed from the ends of earlier ones;
/// then the rows of each segment read, in any order. Each number results from the same operations
/// in the same order as in the undivided stream, so it has the same bits.
#pragma once

#include "fovea/kernels/linear/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// First step: the sums of one segment.
template <class T, Storage S = Storage::native>
struct LinearChunkArgs {
  StoredMatrix<S> k;     ///< [tokens, D]
  StoredMatrix<S> v;     ///< [tokens, Dv]
  LinearMaps<T> maps;    ///< the feature maps
  SharedSums<T> sums;    ///< the segment's sums, features and parts of normalisers are written
  Index segment = 0;     ///< the segment's number
  T* scratch = nullptr;  ///< linear_state_elements(...) elements, aligned to 64 bytes
};

/// Second step: the starts of segments and the normalisers of one map.
template <class T>
struct LinearStartArgs {
  SharedSums<T> sums;     ///< starts, normalisers and words are written
  Index map = 0;          ///< which map
  bool is_first = false;  ///< whether there are no earlier segments: `words` is not read
};

FOVEA_NAMESPACE_END
