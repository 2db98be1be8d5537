// SPDX-License-Identifier: MIT
/// \file
/// Causal linear attention of one key head: tokens are added to the state, and rows read it, chunk
/// by chunk. Cost for each token, map and head: 4 D Dv + about kLinearChunk (3/2 D + Dv)
/// operations. Measurements at D = Dv = 64 and 128 show that chunks of 64 tokens are slower; chunks
/// of 16 tie at 64.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/output.inl.hpp"
#endif

/// The parts of the scratch (linear_stream_scratch).
template <class T>
struct RowScratch {
  T* features;    // [kLinearChunk, padded D]
  T* numerators;  // [kLinearChunk, padded Dv]
  T* sums;        // [kLinearChunk, padded Dv]
  T* weights;     // [kLinearChunk, kLinearChunk]
  T* denominators;
  T* inverses;

  RowScratch(T* scratch, Index width, Index value_width) {
    features = scratch;
    numerators = features + kLinearChunk * padded_row<T>(width);
    sums = numerators + kLinearChunk * padded_row<T>(value_width);
    weights = sums + kLinearChunk * padded_row<T>(value_width);
    denominators = weights + kLinearChunk * kLinearChunk;
    inverses = denominators + kLinearChunk;
  }

  FOVEA_INLINE void give_to(StateReader<T>& reader) const {
    reader.features = features;
    reader.numerators = numerators;
    reader.weights = weights;
    reader.denominators = denominators;
    reader.inverses = inverses;
  }
};

/// Whether whole vectors are written to `out` unconverted.
template <class T, Storage S>
FOVEA_INLINE bool is_plain(const LinearRows<T, S>& rows, Index value_width) {
  return (S == Storage::native || rows.out.is_wide) && rows.out.column == 1 &&
         value_width == padded_row<T>(value_width) && rows.near_field.data == nullptr &&
         rows.far_weight == nullptr;
}

/// Computes the rows of a reader, from row `first` of a head on, for map l.
/// \param next later rows, to prefetch
template <class T, Storage S>
FOVEA_INLINE void read_rows(StateReader<T>& reader, const LinearRows<T, S>& rows, Index first,
                            Index next, Index value_width, const LinearMaps<T>& maps, Index l,
                            T* sums) {
  QueryPrefetcher after;
  if (l == 0) {
    after = {
        RowPrefetcher<0>::template of<T>(rows.q, first + reader.count, 1, next,
                                         row_width(maps, reader.width)),
        RowPrefetcher<1>::template of<T>(rows.out, first + reader.count, 1, next, value_width)};
  }
  reader.ahead = &after;
  feature_rows(maps, l, every_row<T>(rows.q, first, 1), reader.count, reader.width, reader.features,
               reader.row);
  const bool all = find_denominators(reader, maps.policy, maps.floor);
  if (reader.keys > 0) find_weights(reader);
  const bool plain = all && maps.count == 1 && is_plain(rows, value_width);
  reader.out_row = rows.out.row;
  reader.out = plain ? static_cast<T*>(rows.out.data) + first * rows.out.row : nullptr;
  find_numerators(reader);
  if (plain) return;
  const bool zero_row = maps.policy == DenominatorPolicy::zero_row;
  with_storage(rows.out, FarRows<T, S>{rows, first, value_width, reader, zero_row, l == 0,
                                       l == maps.count - 1, sums});
}

/// Prefetches the pages of the chunk that begins with token `first`, and of the rows that read it.
/// Inlined, since GCC would otherwise remove it as a function without effects.
template <class T, Storage S>
FOVEA_INLINE void prefetch_pages(const StreamArgs<T, S>& args, Index first, Index chunk) {
  const Index token = first - args.length;
  const Index tokens = smaller(chunk, args.tokens - token);
  RowPrefetcher<0>::template of<T>(args.k, token, 1, tokens, args.width).prefetch_pages();
  RowPrefetcher<0>::template of<T>(args.v, token, 1, tokens, args.value_width).prefetch_pages();
  const Index row = larger(0, first - args.first_position);
  const Index rows = clamped(args.row_count - row, 0, chunk);
  for (Index h = 0; h < args.heads; ++h) {
    const LinearRows<T, S>& head = args.rows[h];
    RowPrefetcher<0>::template of<T>(head.q, row, 1, rows, args.width).prefetch_pages();
    RowPrefetcher<1>::template of<T>(head.out, row, 1, rows, args.value_width).prefetch_pages();
  }
}

template <class T, Storage S>
class LinearStream {
 public:
  explicit LinearStream(const LinearStreamArgs<T, S>& args)
      : args_(args), scratch_(args.scratch, args.width, args.value_width), values_(args.state) {}

  void run() {
    for (Index l = 0; l < args_.maps.count; ++l) {
      if (args_.sums.data != nullptr) clear_chunk(map_state(l));
      if (args_.sums.data == nullptr && args_.length == 0) clear_state(map_state(l));
    }
    const Index end = args_.length + args_.tokens;
    const Index unseen =
        end == 0 ? args_.row_count : clamped(-args_.first_position, 0, args_.row_count);
    read_unseen(unseen);
    if (end == 0) return;
    // Rows at position length - 1 read the chunk of the last token before.
    Index chunk = larger(0, args_.length - 1) / kLinearChunk;
    Index row = unseen;
    for (; chunk * kLinearChunk < end; ++chunk) {
      const Index first = chunk * kLinearChunk;
      const Index last = smaller(first + kLinearChunk, end);
      append(chunk, larger(first, args_.length), last);
      const Index rows_end = last == end
                                 ? args_.row_count
                                 : clamped(last - args_.first_position, row, args_.row_count);
      read(row, rows_end, first, last - first);
      row = rows_end;
    }
  }

 private:
  FOVEA_INLINE RunningState<T> map_state(Index l) const {
    RunningState<T> state = running_state(args_.state, args_.width, args_.value_width, l);
    state.values = values_;
    return state;
  }

  void read_unseen(Index count) const {
    if (count == 0) return;
    for (Index h = 0; h < args_.heads; ++h) {
      blend_far<T>(args_.rows[h], 0, count, args_.value_width, nullptr, 0);
    }
  }

  /// Adds tokens [begin, end) of a chunk; the chunk's first token closes the previous chunk.
  void append(Index chunk, Index begin, Index end) {
    if (begin >= end) return;
    const Index first = chunk * kLinearChunk;
    const Index next = end - args_.length;
    TokenPrefetcher after = {
        RowPrefetcher<0>::template of<T>(args_.k, next, 1,
                                         smaller(kLinearChunk, args_.tokens - next),
                                         row_width(args_.maps, args_.width)),
        RowPrefetcher<0>::template of<T>(
            args_.v, next, 1, smaller(kLinearChunk, args_.tokens - next), args_.value_width)};
    prefetch_pages(args_, end, kLinearChunk);
    for (Index l = 0; l < args_.maps.count; ++l) {
      RunningState<T> state = map_state(l);
      if (begin == first) end_chunk(state, l, chunk, after);
      if (knows_features(chunk)) {
        state.features = args_.sums.features(l, chunk % kSharedChunks);
      } else {
        feature_rows(args_.maps, l, every_row<T>(args_.k, begin - args_.length, 1), end - begin,
                     state.width, state.features + (begin - first) * state.row, state.row);
      }
      append_features(state, begin - first, end - first);
    }
    const Index row = padded_row<T>(args_.value_width);
    const StoredMatrix<S> values = every_row<T>(args_.v, begin - args_.length, 1);
    if (stays_in_place(begin - first, end)) {
      values_ = static_cast<const T*>(values.data);
      return;
    }
    values_ = args_.state;
    pack_padded_rows(values, end - begin, args_.value_width, args_.state + (begin - first) * row);
  }

  /// Whether values up to `end` are read in place: those of a whole chunk that is closed during the
  /// call, if their layout matches the state's.
  /// \param before number of tokens already in the chunk
  FOVEA_INLINE bool stays_in_place(Index before, Index end) const {
    const Index row = padded_row<T>(args_.value_width);
    return S == Storage::native && before == 0 && end < args_.length + args_.tokens &&
           args_.value_width == row && args_.v.row == row && args_.v.column == 1;
  }

  /// Sets the state of map l to that of the tokens before a chunk.
  FOVEA_INLINE void end_chunk(const RunningState<T>& state, Index l, Index chunk,
                              TokenPrefetcher& after) const {
    if (args_.sums.data == nullptr) {
      if (chunk > 0) close_chunk(state, chunk * kLinearChunk, after);
      return;
    }
    const Index segment = chunk / kSegmentChunks % kSharedSegments;
    const Index before = chunk % kSegmentChunks;
    set_state(state, args_.sums.start(l, segment),
              before == 0 ? nullptr : args_.sums.sum(l, segment, before),
              args_.sums.normaliser(l, chunk % kSharedChunks));
  }

  /// Whether the features of a chunk's keys are known.
  FOVEA_INLINE bool knows_features(Index chunk) const {
    return args_.sums.data != nullptr && chunk % kSharedChunks < args_.sums.chunks;
  }

  /// Lets rows [begin, end) of every head read a chunk of `keys` tokens that begins at `first_key`.
  void read(Index begin, Index end, Index first_key, Index keys) const {
    for (Index row = begin; row < end; row += kLinearChunk) {
      const Index count = smaller(kLinearChunk, end - row);
      for (Index h = 0; h < args_.heads; ++h) {
        for (Index l = 0; l < args_.maps.count; ++l) {
          const RunningState<T> state = map_state(l);
          StateReader<T> reader = reader_of(state);
          reader.keys = keys;
          reader.first = args_.first_position + row - first_key;
          reader.count = count;
          read_rows(reader, args_.rows[h], row,
                    smaller(kLinearChunk, args_.row_count - row - count), args_.value_width,
                    args_.maps, l, scratch_.sums);
        }
      }
    }
  }

  FOVEA_INLINE StateReader<T> reader_of(const RunningState<T>& state) const {
    StateReader<T> reader;
    reader.width = state.width;
    reader.row = state.row;
    reader.value_row = state.value_row;
    reader.state = state.read;
    reader.normaliser = state.normaliser();
    reader.run = state.run;
    reader.lanes = state.lanes;
    reader.values = state.values;
    scratch_.give_to(reader);
    return reader;
  }

  const LinearStreamArgs<T, S>& args_;
  RowScratch<T> scratch_;
  const T* values_;  // [kLinearChunk, value_row] of the open chunk
};

/// Adds tokens to a state, which rows read in between.
template <class T, Storage S>
void linear_stream(const LinearStreamArgs<T, S>& args) noexcept {
  LinearStream<T, S>(args).run();
}
