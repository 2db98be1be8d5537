// SPDX-License-Identifier: MIT
/// \file
/// One causal stream of sums divided among threads: the sums of the chunks of a segment, and the
/// starts of segments. The rows are those of stream.inl.hpp.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/running_state.inl.hpp"
#include "fovea/kernels/linear/segments.hpp"
#endif

/// Sums the chunks of one segment.
template <class T, Storage S>
void linear_chunks(const LinearChunkArgs<T, S>& args) noexcept {
  const SharedSums<T>& sums = args.sums;
  const Index width = sums.width;
  const Index value_width = sums.value_width;
  const Index tokens = sums.chunks_of(args.segment) * kLinearChunk;
  for (Index l = 0; l < args.maps.count; ++l) {
    clear_elements(sums.sum(l, args.segment, 0), width * padded_row<T>(value_width));
  }
  for (Index first = 0; first < tokens; first += kLinearChunk) {
    const Index next = first + kLinearChunk;
    const Index count = smaller(kLinearChunk, tokens - next);
    TokenPrefetcher after = {
        RowPrefetcher<0>::template of<T>(args.k, next, 1, count, row_width(args.maps, width)),
        RowPrefetcher<0>::template of<T>(args.v, next, 1, count, value_width)};
    pack_padded_rows(every_row<T>(args.v, first, 1), kLinearChunk, value_width, args.scratch);
    const Index of_segment = first / kLinearChunk;
    const Index chunk = args.segment * kSegmentChunks + of_segment;
    for (Index l = 0; l < args.maps.count; ++l) {
      RunningState<T> s = running_state(args.scratch, width, value_width, l);
      s.features = sums.features(l, chunk);
      feature_rows(args.maps, l, every_row<T>(args.k, first, 1), kLinearChunk, width, s.features,
                   s.row);
      find_runs(s.features, s.row, 0, kLinearChunk, s.run);
      copy_elements(s.last_run(), s.row, sums.normaliser(l, chunk));
      T* const before = sums.sum(l, args.segment, of_segment);
      add_chunk<T>(s, {before, sums.sum(l, args.segment, of_segment + 1), before, nullptr}, after);
    }
  }
}

/// Finds the starts of segments, and the normalisers before chunks.
template <class T>
void linear_starts(const LinearStartArgs<T>& args) noexcept {
  const SharedSums<T>& sums = args.sums;
  const Index all = linear_map_elements<T>(sums.width, sums.value_width);
  const Index row = padded_row<T>(sums.width);
  const Index matrix = all - row;
  T* const high = sums.words(args.map);
  T* const low = high + all;
  if (args.is_first) clear_elements(high, 2 * all);
  for (Index s = 0; s < kSharedSegments && s * kSegmentChunks <= sums.chunks; ++s) {
    copy_elements(high, matrix, sums.start(args.map, s));
    if (sums.chunks_of(s) < kSegmentChunks) break;
    add_to_words(high, low, sums.sum(args.map, s, kSegmentChunks), matrix);
  }
  for (Index c = 0; c < kSharedChunks && c <= sums.chunks; ++c) {
    T* const normaliser = sums.normaliser(args.map, c);
    // The chunk's contribution is read before the normaliser overwrites it.
    for (Index d = 0; d < row; d += kLanes<T>) {
      const Vec<T> chunk = load(normaliser + d);
      Vec<T> sum = load(high + matrix + d);
      Vec<T> rest = load(low + matrix + d);
      store(normaliser + d, sum);
      if (c == sums.chunks) continue;
      add_to_double_word(sum, rest, chunk);
      store(high + matrix + d, sum);
      store(low + matrix + d, rest);
    }
  }
}
