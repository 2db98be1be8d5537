// SPDX-License-Identifier: MIT
/// \file
/// What the kernels read and write that divide one causal stream of sums (linear.hpp) among
/// threads. Their bodies are segments.inl.hpp, compiled once for each instruction-set level;
/// table.hpp chooses the level.
///
/// The tokens are taken some segments at a time. First the chunks of each segment are summed from
/// 0, segment by segment in any order; then the starts of the segments follow from the ends of
/// those before; then the rows of each segment read, again in any order. Each number is made by the
/// operations of the undivided stream, in their order, so it has the same bits.
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
  Index segment = 0;     ///< which of the segments this is
  T* scratch = nullptr;  ///< linear_state_elements(...) elements, aligned to 64 bytes
};

/// Second step: the starts of segments and the normalisers of one map.
template <class T>
struct LinearStartArgs {
  SharedSums<T> sums;     ///< starts, normalisers and words are written
  Index map = 0;          ///< which map
  bool is_first = false;  ///< whether there are no segments before: `words` is not read
};

FOVEA_NAMESPACE_END
