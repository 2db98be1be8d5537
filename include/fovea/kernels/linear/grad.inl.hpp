// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of causal linear attention (FMMformer, eqs. 8-10; the formulas are in
/// grad.hpp): first chunks forwards with the state S, then backwards with the state R of the rows
/// that see a chunk; within a chunk pair by pair. It costs 12 D Dv + 6 kLinearChunk (D + Dv) / 2
/// flops for each token, query head and map.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/linear/grad_keys.inl.hpp"
#include "fovea/kernels/linear/grad_rows.inl.hpp"
#include "fovea/kernels/linear/grad_state.inl.hpp"
#endif

/// The positions that both causal steps go by.
template <class T>
struct GradPositions {
  explicit GradPositions(const LinearGradCausalArgs<T>& args)
      : first(args.first_position), rows(args.row_count), tokens(args.tokens.count) {}

  /// The first row that sees a token.
  Index seeing_row() const { return tokens > 0 ? clamped(-first, 0, rows) : rows; }
  /// The first token that no row sees, nor any token behind it.
  Index unseen_token() const { return clamped(first + rows, 0, tokens); }
  Index row_at(Index position) const { return clamped(position - first, 0, rows); }

  Index first;
  Index rows;
  Index tokens;
};

/// What row `first` of head h keeps of a map, followed by that of the rows behind it.
template <class T>
FOVEA_INLINE GradRecords<T> grad_records(const LinearGradCausalArgs<T>& args, Index h, Index map,
                                         Index first) {
  const Index record = linear_grad_record<T>(args.width, args.maps.policy);
  return {args.saved + ((h * args.maps.count + map) * args.row_count + first) * record, record};
}

/// The first causal step for one map.
template <class T>
class GradForwards {
 public:
  GradForwards(const LinearGradCausalArgs<T>& args, Index map, GradScratch<T> scratch)
      : args_(args),
        positions_(args),
        map_(map),
        widths_(args.width, args.value_width),
        sums_(widths_.value_width, widths_.d, widths_.d, scratch),
        inputs_{args.tokens.k, args.tokens.v, {}, {}, args.tokens.count},
        tokens_(widths_, args.maps, scratch),
        rows_(widths_, args.maps, scratch),
        u_(scratch.take(kLinearChunk * widths_.d)),
        slopes_(scratch.take(kLinearChunk * widths_.d)),
        run_(scratch.take(kLinearChunk * widths_.d)),
        pairs_(scratch.take(kLinearChunk * kLinearChunk)) {}

  void run() {
    for (Index at = 0;; at += kLinearChunk) {
      // The last chunk stays open: rows behind it read it token by token.
      const bool last = at + kLinearChunk >= positions_.tokens;
      const Index begin = larger(positions_.row_at(at), positions_.seeing_row());
      const Index end = last ? positions_.rows : positions_.row_at(at + kLinearChunk);
      tokens_.read_tokens(inputs_, at, smaller(kLinearChunk, positions_.tokens - at), map_);
      add_up_features();
      ahead_ = new_ahead();
      GradTokenTile<T>::ask(inputs_, at + kLinearChunk, widths_, ahead_);
      for (Index h = 0; h < args_.heads; ++h) {
        for (Index r = begin; r < end; r += kLinearChunk) {
          if (h > 0 || r > begin) ahead_ = new_ahead();
          attend(h, r, smaller(kLinearChunk, end - r), positions_.first + r - at);
        }
      }
      if (end == positions_.rows) return;
      close(at + kLinearChunk);
    }
  }

 private:
  GradAhead<T> new_ahead() const {
    return GradAhead<T>((2 * kLinearChunk + widths_.value_width) * widths_.d);
  }

  /// Computes the sums of the chunk's features up to each token.
  void add_up_features() {
    const Index row = widths_.d;
    const Index tokens = tokens_.count();
    for (Index c = 0; c < row; c += kLanes<T>) {
      const T* const features = tokens_.features() + c;
      T* const run = run_ + c;
      Vec<T> sum = zero<T>();
      for (Index j = 0; j < tokens; ++j) {
        sum = sum + load(features + j * row);
        store(run + j * row, sum);
      }
    }
  }

  void attend(Index h, Index first, Index count, Index offset) {
    rows_.read_queries(args_.rows[h], first, count, map_);
    rows_.read_d_out();
    GradRowTile<T>::ask(args_.rows[h], first + count, positions_.rows, widths_, ahead_);
    multiply_rows<ProductSteps::all, T>({rows_.d_out(), widths_.dv, 1, sums_.matrix(), widths_.d,
                                         u_, widths_.d, widths_.value_width, &ahead_},
                                        count, widths_.d);
    pair_products(rows_.d_out(), widths_.dv, tokens_.values_t(), widths_.value_width, count,
                  tokens_.count(), offset, pairs_);
    multiply_rows<ProductSteps::up_to_row, T>(
        {pairs_, kLinearChunk, 1, tokens_.features(), widths_.d, u_, widths_.d, tokens_.count(),
         &ahead_, offset, true},
        count, widths_.d);
    StateReader<T> reader;
    reader.normaliser = sums_.vector();
    reader.run = run_;
    reader.keys = tokens_.count();
    reader.first = offset;
    rows_.attend(reader, u_, slopes_, args_.accumulate || map_ > 0,
                 grad_records(args_, h, map_, first));
  }

  /// Adds a whole chunk to the state.
  void close(Index next) {
    sums_.add_products(tokens_.values_t(), kLinearChunk, 1, tokens_.features(), kLinearChunk,
                       ahead_);
    sums_.add(run_ + (kLinearChunk - 1) * widths_.d);
    if (next % kLinearSegment == 0) sums_.fold();
  }

  const LinearGradCausalArgs<T>& args_;
  const GradPositions<T> positions_;
  const Index map_;
  const GradWidths<T> widths_;
  GradSums<T> sums_;  // S^T [Dv, d] and z [d]
  const LinearGradTokens<T> inputs_;
  GradTokenTile<T> tokens_;
  GradRowTile<T> rows_;
  GradAhead<T> ahead_;
  T* const u_;
  T* const slopes_;
  T* const run_;  // [kLinearChunk, d]
  T* const pairs_;
};

/// The second causal step for one map.
template <class T>
class GradBackwards {
 public:
  GradBackwards(const LinearGradCausalArgs<T>& args, Index map, GradScratch<T> scratch)
      : args_(args),
        positions_(args),
        map_(map),
        widths_(args.width, args.value_width),
        sums_(widths_.width, widths_.dv, widths_.d, scratch),
        tokens_(widths_, args.maps, scratch),
        rows_(widths_, args.maps, scratch),
        gradients_(widths_, scratch),
        chunk_r_(scratch.take(widths_.d)),
        products_(scratch.take(kLinearChunk * kLinearChunk)),
        value_products_(scratch.take(kLinearChunk * kLinearChunk)) {}

  void run() {
    const Index unseen = positions_.unseen_token();
    const Index top = positions_.first + positions_.rows - 1;
    const bool accumulate = args_.accumulate || map_ > 0;
    if (unseen == 0) return;
    for (Index at = top / kLinearChunk * kLinearChunk; at >= 0; at -= kLinearChunk) {
      const Index count = clamped(unseen - at, 0, kLinearChunk);
      const Index begin = positions_.row_at(at);
      const Index end = positions_.row_at(at + kLinearChunk);
      tokens_.read_tokens(args_.tokens, count > 0 ? at : 0, count, map_);
      ahead_ = new_ahead();
      GradTokenTile<T>::ask(args_.tokens, at - kLinearChunk, widths_, ahead_);
      ask_rows(0, begin);
      gradients_.read(tokens_, sums_.matrix(), ahead_);
      gradients_.add(sums_.vector(), d_k() ? count : 0);
      for (Index h = 0; begin < end && h < args_.heads; ++h) {
        add_rows(h, begin, end, positions_.first + begin - at);
      }
      if (d_k()) tokens_.write_d_k(gradients_.d_features(), gradients_.scratch(), accumulate);
      if (d_v()) tokens_.write_d_v(gradients_.d_values(), accumulate);
      if (at % kLinearSegment == 0) sums_.fold();
    }
  }

 private:
  GradAhead<T> new_ahead() const {
    return GradAhead<T>((4 * kLinearChunk + widths_.width) * widths_.dv);
  }
  bool d_k() const { return args_.tokens.d_k.data != nullptr; }
  bool d_v() const { return args_.tokens.d_v.data != nullptr; }

  /// Asks for the rows of a head before row `end`.
  void ask_rows(Index h, Index end) {
    LinearGradRows<T> inputs = args_.rows[h];
    inputs.d_q = {};
    GradRowTile<T>::ask(inputs, larger(0, end - kLinearChunk), end, widths_, ahead_);
  }

  /// Adds what rows of the chunk contribute to its tokens' gradients, and then to R and r.
  void add_rows(Index h, Index begin, Index end, Index offset) {
    const Index count = end - begin;
    if (h > 0) {
      ahead_ = new_ahead();
      ask_rows(h, begin);
    }
    rows_.read_queries(args_.rows[h], begin, count, map_);
    rows_.read_divided(grad_records(args_, h, map_, begin));
    const T* const features = rows_.features();
    const T* const weights = rows_.d_out();
    if (d_k() && tokens_.count() > 0) {
      pair_products(weights, widths_.dv, tokens_.values_t(), widths_.value_width, count,
                    tokens_.count(), offset, value_products_);
      multiply_rows<ProductSteps::from_row, T>(
          {value_products_, 1, kLinearChunk, features, widths_.d, gradients_.d_features(),
           widths_.d, count, &ahead_, offset, true},
          tokens_.count(), widths_.d);
    }
    if (d_v() && tokens_.count() > 0) {
      lanes_of_features();
      pair_products(features, widths_.d, gradients_.scratch(), widths_.width, count,
                    tokens_.count(), offset, products_);
      multiply_rows<ProductSteps::from_row, T>(
          {products_, 1, kLinearChunk, weights, widths_.dv, gradients_.d_values(), widths_.dv,
           count, &ahead_, offset, true},
          tokens_.count(), widths_.dv);
    }
    if (d_k()) add_d_z(offset);
    sums_.add_products(features, 1, widths_.d, weights, count, ahead_);
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
    sums_.add(chunk_r_);
  }

  const LinearGradCausalArgs<T>& args_;
  const GradPositions<T> positions_;
  const Index map_;
  const GradWidths<T> widths_;
  GradSums<T> sums_;  // R [D, dv] and r [d]
  GradTokenTile<T> tokens_;
  GradRowTile<T> rows_;
  TokenGradients<T> gradients_;
  GradAhead<T> ahead_;
  T* const chunk_r_;         // [d], that of the chunk alone
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

/// Computes d_q, d_out_times_out and `saved` for the heads of the call.
template <class T>
void linear_grad_causal_rows(const LinearGradCausalArgs<T>& args) noexcept {
  const GradPositions<T> positions(args);
  if (!args.accumulate) {
    for (Index h = 0; h < args.heads; ++h) {
      clear_rows(args.rows[h].d_q, 0, positions.seeing_row(), args.width);
    }
  }
  const Index begin = positions.seeing_row();
  if (begin < positions.rows) {
    for (Index l = 0; l < args.maps.count; ++l) GradForwards<T>(args, l, {args.scratch}).run();
  }
  for (Index h = 0; h < args.heads; ++h) {
    if (args.rows[h].d_out_times_out == nullptr) continue;
    CompensatedSum<T> sum;
    for (Index l = 0; l < args.maps.count; ++l) {
      add_row_products(grad_records(args, h, l, begin), positions.rows - begin, sum);
    }
    *args.rows[h].d_out_times_out = sum.value();
  }
}

/// Computes d_k and d_v from `saved`.
template <class T>
void linear_grad_causal_keys(const LinearGradCausalArgs<T>& args) noexcept {
  const GradPositions<T> positions(args);
  const Index unseen = positions.unseen_token();
  if (!args.accumulate) {
    clear_rows(args.tokens.d_k, unseen, args.tokens.count, args.width);
    clear_rows(args.tokens.d_v, unseen, args.tokens.count, args.value_width);
  }
  for (Index l = 0; unseen > 0 && l < args.maps.count; ++l) {
    GradBackwards<T>(args, l, {args.scratch}).run();
  }
}
