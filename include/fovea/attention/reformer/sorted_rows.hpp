// SPDX-License-Identifier: MIT
/// \file
/// The rows of all sequences, hashed and sorted for every round.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/reformer/options.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/kernels/sorting/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// A chunk of a round: consecutive rows in sorted order.
struct SortedChunk {
  Index round = 0;                     ///< the round
  Index number = 0;                    ///< its index in the round
  const std::int32_t* rows = nullptr;  ///< [count] rows of the sequence
  Index count = 0;                     ///< number of rows; 0 if there is no such chunk
};

/// For each sequence (batch entry and head) and round, the bucket of every row, and the rows sorted
/// by (bucket, position). A row whose products contain a NaN is sorted as if its bucket were the
/// first one, and `has_bucket` says so.
template <class T>
class SortedRows {
 public:
  /// \param inputs checked, like the options; their tensors must outlive this object
  SortedRows(const ReformerOptions& options, const ReformerInputs<T>& inputs)
      : options_(options), inputs_(inputs), shape_(shape_of(inputs)) {}

  /// Allocates the memory.
  /// \throws std::bad_alloc
  void take_memory(const ExecutorRef& executor) {
    auto&& memory = memory_of(executor);
    const Index places = sequences() * options_.rounds * shape_.rows;
    buckets_ = memory.take(places, sizeof(std::int32_t));
    order_ = memory.take(places, sizeof(std::int32_t));
    ranks_ = memory.take(places, sizeof(std::int32_t));
    inverse_ = memory.take(sequences() * shape_.rows, kElement);
    projection_ = memory.take(projection_elements(options_, shape_), kElement);
    const Index tasks = sequences() * (std::max)(options_.rounds, blocks());
    scratch_ = memory.take(worker_count(executor, tasks), slot_bytes(options_, shape_));
  }

  /// Hashes and sorts.
  /// \pre take_memory(executor) was called
  void sort(const ExecutorRef& executor) {
    memory_of(executor).require();
    for (Index r = 0; r < options_.rounds; ++r) write_projection(r);
    for_each_task(executor, sequences() * blocks(), [&](Index task, Index worker) {
      hash(task / blocks(), task % blocks(), slot(worker));
    });
    for_each_task(executor, sequences() * options_.rounds, [&](Index task, Index worker) {
      sort_round(task / options_.rounds, task % options_.rounds, slot(worker));
    });
  }

  /// The number of sequences, counting heads.
  Index sequences() const { return shape_.batch * shape_.heads; }
  /// The number of rows of a sequence.
  Index length(Index sequence) const {
    return inputs_.key_lengths.value_or(sequence / shape_.heads, shape_.rows);
  }
  /// The number of chunks of each round of a sequence.
  Index chunks(Index sequence) const {
    return (length(sequence) + options_.chunk - 1) / options_.chunk;
  }
  /// A chunk of a round.
  SortedChunk chunk(Index sequence, Index round, Index number) const {
    const Index first = number * options_.chunk;
    return {round, number, order_.data<std::int32_t>() + place(sequence, round) + first,
            (std::min)(options_.chunk, length(sequence) - first)};
  }
  /// The preceding chunk, which the rows of a chunk also see; its count is 0 if there is none.
  SortedChunk before(Index sequence, const SortedChunk& own) const {
    if (own.number > 0) return chunk(sequence, own.round, own.number - 1);
    return beyond(sequence, own, -1, chunks(sequence) - 1);
  }
  /// The chunk that a given one precedes; its count is 0 if there is none.
  SortedChunk after(Index sequence, const SortedChunk& own) const {
    if (own.number + 1 < chunks(sequence)) return chunk(sequence, own.round, own.number + 1);
    return beyond(sequence, own, 1, 0);
  }

  /// [N] the buckets of a round; kNoBucket for rows without one.
  const std::int32_t* buckets(Index sequence, Index round) const {
    return buckets_.data<std::int32_t>() + place(sequence, round);
  }
  /// [N] the index of each row in a round's sorted order.
  const std::int32_t* ranks(Index sequence, Index round) const {
    return ranks_.data<std::int32_t>() + place(sequence, round);
  }
  /// [N] 1 / max(|x|, 1e-12) of each row.
  const T* inverse_norms(Index sequence) const {
    return inverse_.template data<T>() + sequence * shape_.rows;
  }

 private:
  static constexpr Index kElement = sizeof(T);

  /// The layout of a worker's scratch: packed rows and their products, or counts of buckets.
  static Index slot_bytes(const ReformerOptions& options, const ReformerShape& s) {
    const Index products = kProductRows * (s.width + options.buckets / 2) * kElement;
    const Index counts = (options.buckets + 1) * Index{sizeof(std::int32_t)};
    return padded_size((std::max)(products, counts), kWorkspaceAlignment);
  }
  static Index projection_elements(const ReformerOptions& options, const ReformerShape& s) {
    return options.rounds * s.width * (options.buckets / 2);
  }

  std::byte* slot(Index worker) {
    return scratch_.data<std::byte>() + worker * slot_bytes(options_, shape_);
  }
  Index place(Index sequence, Index round) const {
    return (sequence * options_.rounds + round) * shape_.rows;
  }
  /// The neighbour of the first (step -1) or last (step 1) chunk of a round: the chunk of that
  /// number, of the same or of the previous or next round.
  SortedChunk beyond(Index sequence, const SortedChunk& own, Index step, Index number) const {
    if (options_.before_first == FirstChunk::none) return {};
    Index round = own.round;
    if (options_.before_first == FirstChunk::previous_round) {
      round = (round + options_.rounds + step) % options_.rounds;
    }
    const bool is_itself = round == own.round && number == own.number;
    return is_itself ? SortedChunk{} : chunk(sequence, round, number);
  }
  /// The number of blocks of rows that are hashed at once.
  Index blocks() const { return (shape_.rows + kProductRows - 1) / kProductRows; }

  /// Writes the projection of a round, given or random, in dense rows.
  void write_projection(Index round) {
    const Index half = options_.buckets / 2;
    const bool is_drawn = inputs_.projection.empty();
    T* const to = projection_.template data<T>() + round * shape_.width * half;
    for (Index d = 0; d < shape_.width; ++d) {
      for (Index c = 0; c < half; ++c) {
        to[d * half + c] = is_drawn
                               ? static_cast<T>(reformer_projection(options_.seed, round, d, c))
                               : inputs_.projection(0, round, d, c);
      }
    }
  }

  /// 1 / max(|x|, kLeastLength) of a row, without overflow or underflow of squares.
  T inverse_norm(const T* row) const {
    constexpr Index chains = 4;
    double sums[chains] = {};
    double largest = 0;
    for (Index d = 0; d < shape_.width; ++d) {
      const auto x = std::abs(static_cast<double>(row[d]));
      largest = largest < x ? x : largest;
      sums[d % chains] += rounded(x * x);
    }
    double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    double norm = std::sqrt(sum);
    if (largest > 1e150 && std::isfinite(largest)) {
      sum = 0;
      for (Index d = 0; d < shape_.width; ++d) {
        const double x = static_cast<double>(row[d]) / largest;
        sum += rounded(x * x);
      }
      norm = largest * std::sqrt(sum);
    }
    return static_cast<T>(1 / (norm < kLeastLength ? kLeastLength : norm));
  }

  /// Hashes a block of rows in all rounds.
  void hash(Index sequence, Index block, std::byte* scratch) {
    const Index first = block * kProductRows;
    const Index rows = (std::min)(kProductRows, length(sequence) - first);
    if (rows <= 0) return;
    const Matrix<const T> x =
        detail::head_matrix(inputs_.qk, sequence / shape_.heads, sequence % shape_.heads, first);
    T* const packed = reinterpret_cast<T*>(scratch);
    T* const products = packed + kProductRows * shape_.width;
    T* const inverse = inverse_.template data<T>() + sequence * shape_.rows + first;
    detail::copy_rows(x, rows, shape_.width, Matrix<T>{packed, shape_.width, 1});
    for (Index i = 0; i < rows; ++i) inverse[i] = inverse_norm(packed + i * shape_.width);
    const Index half = options_.buckets / 2;
    for (Index r = 0; r < options_.rounds; ++r) {
      const T* const w = projection_.template data<T>() + r * shape_.width * half;
      // The products of a row are a column, so that rows are in the lanes.
      ProductArgs<T> product;
      product.a = {w, 1, half};
      product.b = {packed, 1, shape_.width};
      product.to = products;
      product.to_row = kProductRows;
      product.rows = half;
      product.columns = rows;
      product.steps = shape_.width;
      ProductKernels<T>{}.multiply(product);
      HashedRowKernels<T>{}.buckets({products, kProductRows, rows, half,
                                     buckets_.data<std::int32_t>() + place(sequence, r) + first});
    }
  }

  /// Sorts the rows of a round by counting sort.
  void sort_round(Index sequence, Index round, std::byte* scratch) {
    const Index rows = length(sequence);
    const std::int32_t* const buckets = this->buckets(sequence, round);
    auto* const order = order_.data<std::int32_t>() + place(sequence, round);
    auto* const ranks = ranks_.data<std::int32_t>() + place(sequence, round);
    auto* const next = reinterpret_cast<std::int32_t*>(scratch);
    std::fill_n(next, options_.buckets + 1, 0);
    for (Index i = 0; i < rows; ++i) ++next[(std::max)(buckets[i], 0) + 1];
    for (Index b = 0; b < options_.buckets; ++b) next[b + 1] += next[b];
    for (Index i = 0; i < rows; ++i) {
      const std::int32_t rank = next[(std::max)(buckets[i], 0)]++;
      order[rank] = static_cast<std::int32_t>(i);
      ranks[i] = rank;
    }
  }

  ReformerOptions options_;
  ReformerInputs<T> inputs_;
  ReformerShape shape_;
  Workspace buckets_;  // [sequences, rounds, N] like order_ and ranks_
  Workspace order_;
  Workspace ranks_;
  Workspace inverse_;     // [sequences, N]
  Workspace projection_;  // [rounds, D, buckets / 2]
  Workspace scratch_;     // [workers]
};

FOVEA_NAMESPACE_END
