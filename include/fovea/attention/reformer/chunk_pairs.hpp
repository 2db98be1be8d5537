// SPDX-License-Identifier: MIT
/// \file
/// The pairs of a chunk's rows and their candidates: which are hidden, what is added to their
/// logits, and which pair a row with itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fovea/attention/reformer/sorted_rows.hpp"
#include "fovea/kernels/softmax/block.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The logit of a row with itself.
inline constexpr double kSelfLogit = -5e4;

/// Which of a chunk's candidates are also its queries.
struct SelfPairs {
  /// [keys] the query that is the same row as each key; -1: none
  const std::int32_t* query_of = nullptr;

  /// The index of the query in the row of a key's pairs; out of range if there is none.
  Index place(const PairRow& pairs) const {
    const Index at = query_of[pairs.key] - pairs.query;
    return query_of[pairs.key] >= 0 && at >= 0 && at < pairs.count ? at : -1;
  }
};

template <class T>
void set_self_logit(const void* self, const PairRow& pairs, T* logits) noexcept {
  const Index at = static_cast<const SelfPairs*>(self)->place(pairs);
  if (at >= 0) logits[at] = static_cast<T>(kSelfLogit);
}
template <class T>
void clear_self_slope(const void* self, const PairRow& pairs, const T* /*logits*/,
                      T* slopes) noexcept {
  std::fill_n(slopes, pairs.count, T{1});
  const Index at = static_cast<const SelfPairs*>(self)->place(pairs);
  if (at >= 0) slopes[at] = 0;
}

}  // namespace detail

/// The layout of a chunk's candidates: two slots of c keys, its own and that of the preceding
/// chunk.
struct ChunkSlots {
  SortedChunk own;      ///< the chunk of the queries
  SortedChunk before;   ///< the preceding chunk
  Index size = 0;       ///< c
  Index own_first = 0;  ///< the first key of the chunk's own slot: 0 or c

  /// The slots of a chunk, chosen by the parity of its number. So neighbouring chunks have shared
  /// keys in the same slot, and the order of the keys depends only on the chunk.
  static ChunkSlots of(const SortedChunk& own, const SortedChunk& before, Index size) {
    return {own, before, size, own.number % 2 * size};
  }

  /// The first key of the other slot.
  Index before_first() const { return size - own_first; }
  /// The number of keys of a slot.
  Index count(Index first) const { return first == own_first ? own.count : before.count; }

  /// Writes the runs of the keys, and returns their number.
  Index runs(KeyRun (&to)[2]) const {
    if (count(0) == size) {
      to[0] = {0, 1, size + count(size)};
      return 1;
    }
    Index written = 0;
    for (const Index first : {Index{0}, size}) {
      if (count(first) > 0) to[written++] = {first, 1, count(first)};
    }
    return written;
  }
};

/// What the kernels need about the pairs of one chunk at a time, in the memory of one worker.
template <class T>
class ChunkPairs {
 public:
  /// Bytes of memory for one worker.
  static Index size_bytes(const ReformerOptions& options) {
    const Index keys = 2 * options.chunk;
    Index bytes = integer_bytes(keys);
    if (has_bias(options)) bytes += padded_size(options.chunk * keys) * Index{sizeof(T)};
    if (!options.across_buckets || options.correct_duplicates) {
      bytes += (2 * options.rounds + 1) * integer_bytes(keys);
    }
    return bytes;
  }

  /// \param memory size_bytes(...) bytes, aligned to 64
  ChunkPairs(const ReformerOptions& options, const SortedRows<T>& sorted, std::byte* memory)
      : options_(options), sorted_(sorted), keys_(2 * options.chunk) {
    self_ = reinterpret_cast<std::int32_t*>(memory);
    memory += integer_bytes(keys_);
    if (has_bias(options)) {
      bias_ = reinterpret_cast<T*>(memory);
      memory += padded_size(options.chunk * keys_) * Index{sizeof(T)};
    }
    counts_ = reinterpret_cast<std::int32_t*>(memory);
    chunk_of_ = counts_ + padded_size(keys_);
    bucket_of_ = chunk_of_ + options.rounds * padded_size(keys_);
    self_pairs_.query_of = self_;
  }
  ChunkPairs(const ChunkPairs&) = delete;
  ChunkPairs& operator=(const ChunkPairs&) = delete;

  /// Prepares the pairs of a chunk.
  void prepare(Index sequence, const ChunkSlots& chunk_slots) {
    std::fill_n(self_, keys_, -1);
    for (Index i = 0; i < chunk_slots.own.count; ++i) {
      self_[chunk_slots.own_first + i] = static_cast<std::int32_t>(i);
    }
    if (chunk_slots.before.count > 0 && chunk_slots.before.round != chunk_slots.own.round)
      find_selves(chunk_slots);
    if (bias_ == nullptr) return;
    if (!options_.across_buckets || options_.correct_duplicates) look_up(sequence, chunk_slots);
    for (Index i = 0; i < chunk_slots.own.count; ++i) {
      write_bias(sequence, chunk_slots, i, chunk_slots.own_first, chunk_slots.own);
      write_bias(sequence, chunk_slots, i, chunk_slots.before_first(), chunk_slots.before);
    }
  }

  /// The score map of the prepared chunk. It refers to this object.
  /// \param differentiates whether this is a backward pass
  ScoreMap<T> score_map(bool differentiates) const {
    ScoreMap<T> map;
    map.modifier.modifier = &self_pairs_;
    map.modifier.value = &detail::set_self_logit<T>;
    if (differentiates) map.modifier.derivative = &detail::clear_self_slope<T>;
    if (bias_ != nullptr) map.bias = {bias_, keys_, 1};
    return map;
  }

 private:
  static Index integer_bytes(Index count) {
    return padded_size(count) * Index{sizeof(std::int32_t)};
  }
  static bool has_bias(const ReformerOptions& options) {
    return options.causal || !options.across_buckets || options.correct_duplicates;
  }

  /// A row of the chunk may also be in the preceding chunk, if that is from another round.
  void find_selves(const ChunkSlots& chunk_slots) {
    for (Index j = 0; j < chunk_slots.before.count; ++j) {
      const std::int32_t* const at =
          std::find(chunk_slots.own.rows, chunk_slots.own.rows + chunk_slots.own.count,
                    chunk_slots.before.rows[j]);
      if (at == chunk_slots.own.rows + chunk_slots.own.count) continue;
      self_[chunk_slots.before_first() + j] = static_cast<std::int32_t>(at - chunk_slots.own.rows);
    }
  }

  /// Finds the chunk and the bucket of each key in each round.
  void look_up(Index sequence, const ChunkSlots& chunk_slots) {
    for (Index r = 0; r < options_.rounds; ++r) {
      const std::int32_t* const ranks = sorted_.ranks(sequence, r);
      const std::int32_t* const buckets = sorted_.buckets(sequence, r);
      const auto look = [&](Index first, const SortedChunk& chunk) {
        for (Index j = 0; j < chunk.count; ++j) {
          const Index at = r * padded_size(keys_) + first + j;
          chunk_of_[at] = static_cast<std::int32_t>(ranks[chunk.rows[j]] / options_.chunk);
          bucket_of_[at] = buckets[chunk.rows[j]];
        }
      };
      look(chunk_slots.own_first, chunk_slots.own);
      look(chunk_slots.before_first(), chunk_slots.before);
    }
  }

  /// Writes the bias of query i and the keys of one slot.
  void write_bias(Index sequence, const ChunkSlots& chunk_slots, Index i, Index first,
                  const SortedChunk& chunk) {
    constexpr T hidden = -std::numeric_limits<T>::infinity();
    T* const bias = bias_ + i * keys_ + first;
    const std::int32_t row = chunk_slots.own.rows[i];
    std::fill_n(bias, chunk.count, T{0});
    if (options_.correct_duplicates) {
      std::fill_n(counts_, chunk.count, 0);
      for (Index r = 0; r < options_.rounds; ++r) count_round(sequence, row, r, first, chunk.count);
      for (Index j = 0; j < chunk.count; ++j) {
        bias[j] = counts_[j] < 2 ? T{0} : -std::log(static_cast<T>(counts_[j]));
      }
    }
    if (!options_.across_buckets) {
      const std::int32_t bucket = sorted_.buckets(sequence, chunk_slots.own.round)[row];
      const std::int32_t* const of = bucket_of_ + chunk.round * padded_size(keys_) + first;
      for (Index j = 0; j < chunk.count; ++j) {
        if (chunk.round != chunk_slots.own.round || of[j] != bucket) bias[j] = hidden;
      }
    }
    for (Index j = 0; j < chunk.count && options_.causal; ++j) {
      if (chunk.rows[j] > row) bias[j] = hidden;
    }
  }

  /// Counts the keys of a slot that are candidates of a row in a round.
  void count_round(Index sequence, std::int32_t row, Index r, Index first, Index count) {
    const auto own = static_cast<std::int32_t>(sorted_.ranks(sequence, r)[row] / options_.chunk);
    const SortedChunk before = sorted_.before(sequence, sorted_.chunk(sequence, r, own));
    count_chunk(sequence, row, r, r, own, first, count);
    if (before.count == 0) return;
    count_chunk(sequence, row, r, before.round, static_cast<std::int32_t>(before.number), first,
                count);
  }
  void count_chunk(Index sequence, std::int32_t row, Index row_round, Index round,
                   std::int32_t number, Index first, Index count) {
    const std::int32_t* const chunks = chunk_of_ + round * padded_size(keys_) + first;
    if (options_.across_buckets) {
      for (Index j = 0; j < count; ++j) counts_[j] += chunks[j] == number ? 1 : 0;
      return;
    }
    if (round != row_round) return;  // buckets of different rounds are different
    const std::int32_t bucket = sorted_.buckets(sequence, round)[row];
    const std::int32_t* const buckets = bucket_of_ + round * padded_size(keys_) + first;
    for (Index j = 0; j < count; ++j) {
      counts_[j] += chunks[j] == number && buckets[j] == bucket ? 1 : 0;
    }
  }

  const ReformerOptions& options_;
  const SortedRows<T>& sorted_;
  Index keys_;                        // 2 c
  std::int32_t* self_;                // [keys]
  T* bias_ = nullptr;                 // [c, keys], or null
  std::int32_t* counts_ = nullptr;    // [keys]
  std::int32_t* chunk_of_ = nullptr;  // [rounds, keys padded]
  std::int32_t* bucket_of_ = nullptr;
  detail::SelfPairs self_pairs_;
};

FOVEA_NAMESPACE_END
