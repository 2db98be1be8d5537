// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of causal linear attention (FMMformer, eqs. 8-10; the formulas are in
/// grad.hpp): first chunks forwards with the state S, then backwards with the state R of the rows
/// that see a chunk; pairwise within a chunk. It costs 12 D Dv + 6 kLinearChunk (D + Dv) / 2 flops
/// for each token, query head and map.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/grad_keys.inl.hpp"
#include "fovea/kernels/linear/grad_rows.inl.hpp"
#include "fovea/kernels/linear/grad_state.inl.hpp"
#endif

/// The positions used by both causal steps.
template <class T>
struct GradPositions {
  /// \param is_row_block whether there are earlier tokens and later rows
  explicit GradPositions(const LinearGradCausalArgs<T>& args, bool is_row_block = false)
      : first(args.first_position),
        rows(args.row_count),
        tokens(args.tokens.count),
        row_block(is_row_block) {}

  /// The first row that sees a token.
  Index seeing_row() const { return tokens > 0 || row_block ? clamped(-first, 0, rows) : rows; }
  /// No row sees this token or a later one.
  Index unseen_token() const { return row_block ? tokens : clamped(first + rows, 0, tokens); }
  Index row_at(Index position) const { return clamped(position - first, 0, rows); }
  /// The chunk that the last row reads, if a row sees a token. Chunks before it are whole.
  Index last_chunk() const { return (smaller(first + rows, tokens) - 1) / kLinearChunk; }
  /// The chunk at the position of the last row, and that of the first one that sees a token.
  Index top_chunk() const { return (first + rows - 1) / kLinearChunk; }
  Index bottom_chunk() const { return larger(first, 0) / kLinearChunk; }

  Index first;
  Index rows;
  Index tokens;
  bool row_block;
};

/// The record of row `first` of head h for a map, followed by those of later rows.
template <class T>
FOVEA_INLINE GradRecords<T> grad_records(const LinearGradCausalArgs<T>& args, Index h, Index map,
                                         Index first) {
  const Index record = linear_grad_record<T>(args.width, args.maps.policy);
  const Index rows = args.saved_rows > 0 ? args.saved_rows : args.row_count;
  return {args.saved + ((h * args.maps.count + map) * rows + first) * record, record};
}

/// The first causal step for one map.
template <class T>
class GradForwards {
 public:
  GradForwards(const LinearGradCausalArgs<T>& args, Index map, GradScratch<T> scratch,
               bool is_row_block = false)
      : args_(args),
        positions_(args, is_row_block),
        map_(map),
        widths_(args.width, args.value_width),
        inputs_{args.tokens.k, args.tokens.v, {}, {}, args.tokens.count},
        sums_{scratch.take(GradSums<T>::elements(widths_.value_width, widths_.d, widths_.d))},
        tokens_(widths_, args.maps, scratch),
        rows_(widths_, args.maps, scratch),
        u_(scratch.take(kLinearChunk * widths_.d)),
        slopes_(scratch.take(kLinearChunk * widths_.d)),
        run_(scratch.take(kLinearChunk * widths_.d)),
        pairs_(scratch.take(kLinearChunk * kLinearChunk)) {}

  /// Processes all chunks with a running state.
  void run() {
    GradSums<T> sums(widths_.value_width, widths_.d, widths_.d, sums_);
    const Index last = positions_.last_chunk();
    for (Index chunk = 0;; ++chunk) {
      read(chunk, sums.matrix(), sums.vector());
      if (chunk == last) return;
      sums.add_products(tokens_.values_t(), kLinearChunk, 1, tokens_.features(), kLinearChunk,
                        prefetcher_);
      sums.add_to_normaliser(chunk_z());
    }
  }

  /// Processes all chunks of a row block, and adds them to a carried state, unless they stay open.
  void run_row_block(GradSums<T>& sums, bool stays_open) {
    Index chunk = 0;
    do {
      read(chunk, sums.matrix(), sums.vector());
      if (tokens_.count() == 0 || stays_open) return;
      sums.add_products(tokens_.values_t(), kLinearChunk, 1, tokens_.features(), tokens_.count(),
                        prefetcher_);
      sums.add_to_normaliser(run_ + (tokens_.count() - 1) * widths_.d);
    } while (++chunk * kLinearChunk < positions_.tokens);
  }

  /// Computes the contribution of a whole chunk to the state.
  /// \param matrix [Dv, d], written
  /// \param vector [d], written
  void sum(Index chunk, T* matrix, T* vector) {
    read_tokens(chunk);
    multiply_rows<ProductSteps::all, T>({tokens_.values_t(), kLinearChunk, 1, tokens_.features(),
                                         widths_.d, matrix, widths_.d, kLinearChunk, &prefetcher_},
                                        widths_.value_width, widths_.d);
    copy_elements(chunk_z(), widths_.d, vector);
  }

  /// Lets the rows of a chunk read the state before it.
  /// \param matrix S^T [Dv, d]
  /// \param vector z [d]
  void read(Index chunk, const T* matrix, const T* vector) {
    // The last chunk stays open: later rows read it token by token.
    const Index at = chunk * kLinearChunk;
    const bool last = at + kLinearChunk >= positions_.tokens;
    const Index begin = larger(positions_.row_at(at), positions_.seeing_row());
    const Index end = last ? positions_.rows : positions_.row_at(at + kLinearChunk);
    matrix_ = matrix;
    vector_ = vector;
    read_tokens(chunk);
    for (Index h = 0; h < args_.heads; ++h) {
      for (Index r = begin; r < end; r += kLinearChunk) {
        if (h > 0 || r > begin) prefetcher_ = new_prefetcher();
        process_rows(h, r, smaller(kLinearChunk, end - r), positions_.first + r - at);
      }
    }
  }

 private:
  const T* chunk_z() const { return run_ + (kLinearChunk - 1) * widths_.d; }

  void read_tokens(Index chunk) {
    const Index at = chunk * kLinearChunk;
    tokens_.read_tokens(inputs_, at, smaller(kLinearChunk, positions_.tokens - at), map_);
    find_runs(tokens_.features(), widths_.d, 0, tokens_.count(), run_);
    prefetcher_ = new_prefetcher();
    GradTokenTile<T>::prefetch(inputs_, at + kLinearChunk, widths_, prefetcher_);
  }

  GradPrefetcher<T> new_prefetcher() const {
    return GradPrefetcher<T>((2 * kLinearChunk + widths_.value_width) * widths_.d);
  }

  void process_rows(Index h, Index first, Index count, Index offset) {
    rows_.read_queries(args_.rows[h], first, count, map_);
    rows_.read_d_out();
    GradRowTile<T>::prefetch(args_.rows[h], first + count, positions_.rows, widths_, prefetcher_);
    multiply_rows<ProductSteps::all, T>({rows_.d_out(), widths_.dv, 1, matrix_, widths_.d, u_,
                                         widths_.d, widths_.value_width, &prefetcher_},
                                        count, widths_.d);
    pair_products(rows_.d_out(), widths_.dv, tokens_.values_t(), widths_.value_width, count,
                  tokens_.count(), offset, pairs_);
    multiply_rows<ProductSteps::up_to_row, T>(
        {pairs_, kLinearChunk, 1, tokens_.features(), widths_.d, u_, widths_.d, tokens_.count(),
         &prefetcher_, offset, true},
        count, widths_.d);
    StateReader<T> reader;
    reader.normaliser = vector_;
    reader.run = tokens_.count() > 0 ? run_ : nullptr;
    reader.keys = tokens_.count();
    reader.first = offset;
    rows_.process_rows(reader, u_, slopes_, args_.accumulate || map_ > 0,
                       grad_records(args_, h, map_, first));
  }

  const LinearGradCausalArgs<T>& args_;
  const GradPositions<T> positions_;
  const Index map_;
  const GradWidths<T> widths_;
  const T* matrix_ = nullptr;  // S^T [Dv, d]
  const T* vector_ = nullptr;  // z [d]
  const LinearGradTokens<T> inputs_;
  const GradScratch<T> sums_;  // of the running state
  GradTokenTile<T> tokens_;
  GradRowTile<T> rows_;
  GradPrefetcher<T> prefetcher_;
  T* const u_;
  T* const slopes_;
  T* const run_;  // [kLinearChunk, d]
  T* const pairs_;
};

/// The second causal step for one map.
template <class T>
class GradBackwards {
 public:
  GradBackwards(const LinearGradCausalArgs<T>& args, Index map, GradScratch<T> scratch,
                bool is_row_block = false)
      : args_(args),
        positions_(args, is_row_block),
        map_(map),
        widths_(args.width, args.value_width),
        sums_{scratch.take(GradSums<T>::elements(widths_.width, widths_.dv, widths_.d))},
        tokens_(widths_, args.maps, scratch),
        rows_(widths_, args.maps, scratch),
        gradients_(widths_, scratch),
        chunk_r_(scratch.take(widths_.d)),
        products_(scratch.take(kLinearChunk * kLinearChunk)),
        value_products_(scratch.take(kLinearChunk * kLinearChunk)) {}

  /// Processes all chunks with a running state.
  /// \pre a row sees a token
  void run() {
    GradSums<T> sums(widths_.width, widths_.dv, widths_.d, sums_);
    for (Index chunk = positions_.top_chunk(); chunk >= 0; --chunk) {
      read(chunk, sums.matrix(), sums.vector(), &sums);
      if (chunk * kLinearChunk % kLinearSegment == 0) sums.fold();
    }
  }

  /// Processes all chunks of a row block, and adds their rows to a carried state.
  void run_row_block(GradSums<T>& sums) {
    const Index end = larger(positions_.tokens, positions_.first + positions_.rows);
    for (Index chunk = (end - 1) / kLinearChunk; chunk >= 0; --chunk) {
      read(chunk, sums.matrix(), sums.vector(), &sums);
    }
    sums.fold();
  }

  /// Computes the contribution of one head's rows of a chunk to the state.
  /// \param matrix [D, dv], written
  /// \param vector [d], written
  void sum(Index chunk, Index h, T* matrix, T* vector) {
    const Index begin = positions_.row_at(chunk * kLinearChunk);
    const Index end = positions_.row_at((chunk + 1) * kLinearChunk);
    prefetcher_ = new_prefetcher();
    prefetch_rows(h, begin);
    read_rows(h, begin, end);
    multiply_rows<ProductSteps::all, T>({rows_.features(), 1, widths_.d, rows_.d_out(), widths_.dv,
                                         matrix, widths_.dv, rows_.count(), &prefetcher_},
                                        widths_.width, widths_.dv);
    for (Index c = 0; c < widths_.d; c += kLanes<T>) {
      Vec<T> sum = zero<T>();
      for (Index i = rows_.count(); i-- > 0;) sum = rows_.add_d_z(i, c, sum);
      store(vector + c, sum);
    }
  }

  /// Computes the gradients of a chunk's tokens, if any.
  /// \param matrix R [D, dv] of the rows after the chunk
  /// \param vector r [d]
  /// \param sums to which the chunk's rows are added; null: none
  void read(Index chunk, const T* matrix, const T* vector, GradSums<T>* sums) {
    const bool accumulate = args_.accumulate || map_ > 0;
    const Index at = chunk * kLinearChunk;
    const Index count = clamped(positions_.unseen_token() - at, 0, kLinearChunk);
    const Index begin = positions_.row_at(at);
    const Index end = positions_.row_at(at + kLinearChunk);
    tokens_.read_tokens(args_.tokens, count > 0 ? at : 0, count, map_);
    prefetcher_ = new_prefetcher();
    GradTokenTile<T>::prefetch(args_.tokens, at - kLinearChunk, widths_, prefetcher_);
    prefetch_rows(0, begin);
    gradients_.read(tokens_, matrix, prefetcher_);
    gradients_.add(vector, d_k() ? count : 0);
    for (Index h = 0; begin < end && h < args_.heads; ++h) {
      add_rows(h, begin, end, positions_.first + begin - at);
      if (sums != nullptr) add_to(*sums);
    }
    if (d_k()) tokens_.write_d_k(gradients_.d_features(), gradients_.scratch(), accumulate);
    if (d_v()) tokens_.write_d_v(gradients_.d_values(), accumulate);
  }

 private:
  GradPrefetcher<T> new_prefetcher() const {
    return GradPrefetcher<T>((4 * kLinearChunk + widths_.width) * widths_.dv);
  }
  bool d_k() const { return args_.tokens.d_k.data != nullptr; }
  bool d_v() const { return args_.tokens.d_v.data != nullptr; }

  /// Prefetches the rows of a head before row `end`.
  void prefetch_rows(Index h, Index end) {
    LinearGradRows<T> inputs = args_.rows[h];
    inputs.d_q = {};
    GradRowTile<T>::prefetch(inputs, larger(0, end - kLinearChunk), end, widths_, prefetcher_);
  }

  void read_rows(Index h, Index begin, Index end) {
    rows_.read_queries(args_.rows[h], begin, end - begin, map_);
    rows_.read_divided(grad_records(args_, h, map_, begin));
  }

  /// Adds the last rows read to R and r.
  void add_to(GradSums<T>& sums) {
    sums.add_products(rows_.features(), 1, widths_.d, rows_.d_out(), rows_.count(), prefetcher_);
    if (d_k()) sums.add(chunk_r_);
  }

  /// Adds what rows of the chunk contribute to its tokens' gradients.
  void add_rows(Index h, Index begin, Index end, Index offset) {
    const Index count = end - begin;
    if (h > 0) {
      prefetcher_ = new_prefetcher();
      prefetch_rows(h, begin);
    }
    read_rows(h, begin, end);
    const T* const features = rows_.features();
    const T* const weights = rows_.d_out();
    if (d_k() && tokens_.count() > 0) {
      pair_products(weights, widths_.dv, tokens_.values_t(), widths_.value_width, count,
                    tokens_.count(), offset, value_products_);
      multiply_rows<ProductSteps::from_row, T>(
          {value_products_, 1, kLinearChunk, features, widths_.d, gradients_.d_features(),
           widths_.d, count, &prefetcher_, offset, true},
          tokens_.count(), widths_.d);
    }
    if (d_v() && tokens_.count() > 0) {
      lanes_of_features();
      pair_products(features, widths_.d, gradients_.scratch(), widths_.width, count,
                    tokens_.count(), offset, products_);
      multiply_rows<ProductSteps::from_row, T>(
          {products_, 1, kLinearChunk, weights, widths_.dv, gradients_.d_values(), widths_.dv,
           count, &prefetcher_, offset, true},
          tokens_.count(), widths_.dv);
    }
    if (d_k()) add_d_z(offset);
  }

  void lanes_of_features() {
    rows_to_lanes(tokens_.features(), widths_.d, 1, tokens_.count(), widths_.width, T(1),
                  gradients_.scratch(), kLinearChunk);
  }

  /// Adds r of the rows from each token's own row on, and of all rows.
  void add_d_z(Index offset) {
    const Index row = widths_.d;
    const Index rows = rows_.count();
    const Index tokens = tokens_.count();
    for (Index c = 0; c < row; c += kLanes<T>) {
      T* const to = gradients_.d_features() + c;
      Vec<T> sum = zero<T>();
      Index i = rows;
      for (Index j = tokens; j-- > 0;) {
        for (const Index first = larger(0, j - offset); i > first;) {
          --i;
          sum = rows_.add_d_z(i, c, sum);
        }
        store(to + j * row, load(to + j * row) + sum);
      }
      while (i-- > 0) sum = rows_.add_d_z(i, c, sum);
      store(chunk_r_ + c, sum);
    }
  }

  const LinearGradCausalArgs<T>& args_;
  const GradPositions<T> positions_;
  const Index map_;
  const GradWidths<T> widths_;
  const GradScratch<T> sums_;  // of the running state
  GradTokenTile<T> tokens_;
  GradRowTile<T> rows_;
  TokenGradients<T> gradients_;
  GradPrefetcher<T> prefetcher_;
  T* const chunk_r_;         // [d], of this chunk only
  T* const products_;        // [rows, kLinearChunk], phi(q_i) . phi(k_j)
  T* const value_products_;  // [rows, kLinearChunk], G_i / den_i . v_j
};

/// Writes 0 to rows [begin, end), unless the call adds to them.
template <class T>
FOVEA_NOINLINE void clear_rows(const Matrix<T>& m, Index begin, Index end, Index width) {
  if (m.data == nullptr) return;
  for (Index i = begin; i < end; ++i) {
    for (Index c = 0; c < width; c += kLanes<T>) {
      store_columns(m.data + i * m.row, m.column, c, width, zero<T>());
    }
  }
}

/// Clears the gradients of queries without visible tokens.
template <class T>
FOVEA_NOINLINE void clear_unseeing_rows(const LinearGradCausalArgs<T>& args) {
  const Index end = args.accumulate ? 0 : GradPositions<T>(args).seeing_row();
  for (Index h = 0; h < args.heads; ++h) {
    clear_rows(args.rows[h].d_q, 0, end, row_width(args.maps, args.width));
  }
}

/// Clears the gradients of tokens that no row sees.
template <class T>
FOVEA_NOINLINE void clear_unseen_tokens(const LinearGradCausalArgs<T>& args) {
  const Index unseen = GradPositions<T>(args).unseen_token();
  if (args.accumulate) return;
  clear_rows(args.tokens.d_k, unseen, args.tokens.count, row_width(args.maps, args.width));
  clear_rows(args.tokens.d_v, unseen, args.tokens.count, args.value_width);
}

/// Computes d_out_times_out from `saved`.
template <class T>
void linear_grad_causal_products(const LinearGradCausalArgs<T>& args) noexcept {
  const GradPositions<T> positions(args);
  const Index begin = positions.seeing_row();
  for (Index h = 0; h < args.heads; ++h) {
    if (args.rows[h].d_out_times_out == nullptr) continue;
    CompensatedSum<T> sum;
    for (Index l = 0; l < args.maps.count; ++l) {
      add_row_products(grad_records(args, h, l, begin), positions.rows - begin, sum);
    }
    *args.rows[h].d_out_times_out = sum.value();
  }
}

/// Computes d_q, d_out_times_out and `saved` for the heads of the call.
template <class T>
void linear_grad_causal_rows(const LinearGradCausalArgs<T>& args) noexcept {
  const GradPositions<T> positions(args);
  clear_unseeing_rows(args);
  if (positions.seeing_row() < positions.rows) {
    for (Index l = 0; l < args.maps.count; ++l) GradForwards<T>(args, l, {args.scratch}).run();
  }
  linear_grad_causal_products(args);
}

/// Computes d_k and d_v from `saved`.
template <class T>
void linear_grad_causal_keys(const LinearGradCausalArgs<T>& args) noexcept {
  clear_unseen_tokens(args);
  const Index unseen = GradPositions<T>(args).unseen_token();
  for (Index l = 0; unseen > 0 && l < args.maps.count; ++l) {
    GradBackwards<T>(args, l, {args.scratch}).run();
  }
}
