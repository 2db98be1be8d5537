// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the delta rule (delta_rule.hpp). First the chunks are processed forwards
/// with S^T; the states at chunk borders, the errors E and the products W_ts = -beta_s k'_t . k'_s
/// are saved. Then the chunks are processed backwards with R = dS. Within a chunk, with B = beta k'
/// and P_is = q'_i . k'_s,
///
///     G_s   = beta_s (sum_{i >= s} P_is dO_i + R^T k'_s) + sum_{t > s} W_ts G_t     is dV
///     dB_s  = sum_{i >= s} (dO_i . e_s) q'_i + R e_s - sum_{t > s} (G_t . e_s) k'_t
///     dk'_t = beta_t dB_t - S G_t - sum_{s < t} (G_t . e_s) B_s
///     dq'_i = S dO_i + sum_{s <= i} (dO_i . e_s) B_s
///
/// Further dbeta_s = dB_s . k'_s, and dO Q'^T - K'^T G is added to R. Cost for each token and each
/// row of a head: 16 D Dv + kDeltaChunk (4 D + 4 Dv) flops.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/delta_grad_rows.inl.hpp"
#include "fovea/kernels/linear/grad.inl.hpp"
#endif

/// One call of delta_grad.
template <class T>
class DeltaGrad {
 public:
  explicit DeltaGrad(const DeltaGradArgs<T>& args)
      : a_(args),
        d_(padded_row<T>(args.width)),
        dv_(padded_row<T>(args.value_width)),
        seen_tokens_(clamped(args.first_position + args.row_count, 0, args.tokens.count)),
        blind_rows_(seen_tokens_ == 0 ? args.row_count
                                      : clamped(-args.first_position, 0, args.row_count)),
        free_(args.scratch) {
    const Index chunks = (seen_tokens_ + kDeltaChunk - 1) / kDeltaChunk;
    states_ = take(chunks * args.value_width * d_);
    errors_ = take(chunks * kDeltaChunk * dv_);
    weights_ = take(chunks * kDeltaChunk * kDeltaChunk);
    d_state_ = take(args.width * dv_);
    lost_ = take(args.value_width * d_);
    k_ = take(kDeltaChunk * d_);
    keys_ = take(kDeltaChunk * d_);
    slopes_ = take(kDeltaChunk * d_);
    k_t_ = take(kDeltaChunk * d_);
    errors_t_ = take(kDeltaChunk * dv_);
    turned_ = take(kDeltaChunk * larger(d_, dv_));
    beta_ = take(kDeltaChunk);
    g_ = take(kDeltaChunk * dv_);
    d_keys_ = take(kDeltaChunk * d_);
    d_k_ = take(kDeltaChunk * d_);
    q_ = take(kDeltaChunk * d_);
    q_slopes_ = take(kDeltaChunk * d_);
    d_q_ = take(kDeltaChunk * d_);
    d_out_ = take(kDeltaChunk * dv_);
    products_ = take(kDeltaChunk * kDeltaChunk);
    d_products_ = take(kDeltaChunk * kDeltaChunk);
    lost_products_ = take(args.heads);
  }

  FOVEA_INLINE void run() {
    const Index last = (seen_tokens_ - 1) / kDeltaChunk * kDeltaChunk;
    if (a_.steps != DeltaGradSteps::down) {
      begin_up();
      for (Index at = 0; at < seen_tokens_; at += kDeltaChunk) forwards(at, at == last);
    }
    if (a_.steps == DeltaGradSteps::up) return;
    begin_down();
    for (Index at = last; at >= 0 && seen_tokens_ > 0; at -= kDeltaChunk) backwards(at, at == last);
    if (a_.carried != nullptr) end_down();
  }

 private:
  FOVEA_INLINE T* take(Index n) {
    T* const taken = free_;
    free_ += n;
    return taken;
  }

  /// Sets the state before the first token.
  FOVEA_NOINLINE void begin_up() {
    if (seen_tokens_ == 0) return;
    begin_with(a_.carried, a_.value_width * d_, states_);
    begin_with(a_.carried == nullptr ? nullptr : a_.carried + a_.value_width * d_,
               a_.value_width * d_, lost_);
  }
  /// Copies carried state, or clears it at the start.
  static void begin_with(const T* carried, Index count, T* to) {
    if (carried == nullptr) return clear_elements(to, count);
    copy_elements(carried, count, to);
  }

  DeltaGradCarry<T> carried_down() const {
    return {a_.carried, a_.heads, a_.width, a_.value_width};
  }

  /// Clears the gradients of unseen tokens and rows, and sets the sums, and dS after the last row.
  FOVEA_NOINLINE void begin_down() {
    begin_with(a_.carried, a_.width * dv_, d_state_);
    for (Index h = 0; h < a_.heads; ++h) {
      if (!a_.accumulate) clear_rows(a_.rows[h].d_q, 0, blind_rows_, a_.width);
      const T* const sums = a_.carried == nullptr ? nullptr : carried_down().sums + 2 * h;
      if (a_.rows[h].d_out_times_out != nullptr) {
        *a_.rows[h].d_out_times_out = sums == nullptr ? T{0} : sums[0];
      }
      lost_products_[h] = sums == nullptr ? T{0} : sums[1];
    }
    if (!a_.accumulate) {
      clear_rows(a_.tokens.d_k, seen_tokens_, a_.tokens.count, a_.width);
      clear_rows(a_.tokens.d_v, seen_tokens_, a_.tokens.count, a_.value_width);
    }
    clear_rows(a_.d_beta, seen_tokens_, a_.tokens.count, 1);
  }
  /// Stores dS before the first row, the sums, and the rows' terms of an open chunk before them.
  FOVEA_NOINLINE void end_down() {
    const DeltaGradCarry<T> to = carried_down();
    copy_elements(d_state_, a_.width * dv_, to.d_state);
    for (Index h = 0; h < a_.heads; ++h) {
      if (a_.rows[h].d_out_times_out != nullptr) to.sums[2 * h] = *a_.rows[h].d_out_times_out;
      to.sums[2 * h + 1] = lost_products_[h];
    }
    if (a_.last_chunk != DeltaLastChunk::earlier) return;
    copy_elements(g_, tokens_of(0) * dv_, to.g);
    copy_elements(d_keys_, tokens_of(0) * d_, to.d_keys);
  }
  /// Whether there are tokens before those of the chunk at `at`, which need dS.
  FOVEA_INLINE bool has_before(Index at) const { return at > 0 || a_.carried != nullptr; }

  Index tokens_of(Index at) const { return smaller(kDeltaChunk, seen_tokens_ - at); }
  T* state_of(Index at) const { return states_ + at / kDeltaChunk * (a_.value_width * d_); }
  T* errors_of(Index at) const { return errors_ + at * dv_; }
  T* weights_of(Index at) const { return weights_ + at * kDeltaChunk; }

  /// Loads a chunk's token data for both passes, from k' on: B, and k' as columns.
  FOVEA_INLINE void load_tokens(Index at, Index count) {
    const T* const beta = a_.beta.data + at * a_.beta.row;
    for (Index t = 0; t < count; ++t) {
      beta_[t] = beta[t * a_.beta.row];
      for (Index c = t * d_; c < (t + 1) * d_; c += kLanes<T>) {
        store(keys_ + c, load(k_ + c) * set1(beta_[t]));
      }
    }
    rows_to_lanes(k_, d_, 1, count, a_.width, T{1}, k_t_, kDeltaChunk);
  }

  /// Computes E and W of a chunk, and the state after it.
  FOVEA_NOINLINE void forwards(Index at, bool last) {
    constexpr Index some = 6;  // rows of each matrix to prefetch at once
    const Index count = tokens_of(at);
    const T* const state = state_of(at);
    T* const errors = errors_of(at);
    T* const weights = weights_of(at);
    prefetch_next_chunk(at, last);
    normalised_rows(a_.map, stored(rows_from(a_.tokens.k, at)), count, a_.width, k_);
    token_prefetcher_.prefetch(some);
    load_tokens(at, count);
    multiply_rows<ProductSteps::all, T>(
        {state, d_, 1, k_t_, kDeltaChunk, turned_, kDeltaChunk, a_.width, &token_prefetcher_},
        a_.value_width, in_whole_vectors<T>(count));
    lanes_to_rows<Storage::native>(turned_, kDeltaChunk, errors, dv_, 1, count, a_.value_width,
                                   ValuesMinus<T>{rows_from(a_.tokens.v, at), a_.value_width});
    token_prefetcher_.prefetch(some);
    delta_weights(k_, d_, a_.width, k_t_, count, 0, weights);
    for (Index t = 0; t < count; ++t) {
      for (Index s = 0; s < t; s += kLanes<T>) {
        T* const w = weights + t * kDeltaChunk + s;
        store(w, load(w) * (zero<T>() - load(beta_ + s)));
      }
    }
    token_prefetcher_.prefetch(some);
    DeltaPrefetcher nothing;
    delta_rows<T>({k_, d_, 0, weights, state, errors, dv_, errors, dv_, errors, dv_,
                   DeltaRowKind::token, 0, &nothing},
                  count, in_whole_vectors<T>(a_.value_width));
    if (last && a_.last_chunk == DeltaLastChunk::opens) {
      copy_elements(state, a_.value_width * d_, a_.carried);
    }
    const bool is_closed = count == kDeltaChunk && a_.last_chunk == DeltaLastChunk::here;
    if (last && (a_.carried == nullptr || !is_closed)) return;
    T* const behind = last ? a_.carried : state_of(at + kDeltaChunk);
    add_chunk<T>({errors, dv_, keys_, state, behind, lost_, d_}, a_.value_width,
                 in_whole_vectors<T>(a_.width));
    if (last) copy_elements(lost_, a_.value_width * d_, a_.carried + a_.value_width * d_);
  }

  /// Prefetches the inputs of forwards() for the chunk after the one at `at`.
  FOVEA_INLINE void prefetch_next_chunk(Index at, bool last) {
    token_prefetcher_ = GradPrefetcher<T>(kDeltaChunk * dv_);
    if (last) return;
    const Index next = at + kDeltaChunk;
    const Index count = tokens_of(next);
    token_prefetcher_.read(a_.tokens.k, next, count, a_.width);
    token_prefetcher_.read(a_.tokens.v, next, count, a_.value_width);
    token_prefetcher_.write({errors_of(next), dv_, 1}, 0, count, a_.value_width);
    token_prefetcher_.write({state_of(next), d_, 1}, 0, a_.value_width, a_.width);
  }

  /// Computes the gradients of a chunk's tokens, and of the rows at its positions.
  FOVEA_NOINLINE void backwards(Index at, bool last) {
    const Index count = tokens_of(at);
    normalised_rows(a_.map, rows_from(a_.tokens.k, at), count, a_.width, k_, slopes_);
    load_tokens(at, count);
    prefetch_chunk(at - kDeltaChunk);
    rows_to_lanes(errors_of(at), dv_, 1, count, a_.value_width, T{1}, errors_t_, kDeltaChunk);
    const bool is_open = last && a_.last_chunk != DeltaLastChunk::here;
    if (is_open) {
      copy_elements(carried_down().g, count * dv_, g_);
      copy_elements(carried_down().d_keys, count * d_, d_keys_);
    } else {
      read_d_state(count);
    }
    const Index begin = larger(blind_rows_, at - a_.first_position);
    const Index end =
        last ? a_.row_count : smaller(a_.row_count, at + kDeltaChunk - a_.first_position);
    // Downwards, in row block order.
    const Index pieces = (end - begin + kDeltaChunk - 1) / kDeltaChunk;
    for (Index row = begin + (pieces - 1) * kDeltaChunk; row >= begin; row -= kDeltaChunk) {
      for (Index h = 0; h < a_.heads; ++h) add_rows(h, row, smaller(kDeltaChunk, end - row), at);
    }
    if (a_.last_chunk == DeltaLastChunk::earlier) return;
    add_errors(at, count);
    write_tokens(at, count);
  }

  /// Prefetches the inputs of backwards() for a chunk.
  FOVEA_INLINE void prefetch_chunk(Index at) {
    token_prefetcher_ = GradPrefetcher<T>(kDeltaChunk * (4 * d_ + dv_) + a_.width * dv_);
    if (at < 0) return;
    token_prefetcher_.read(a_.tokens.k, at, kDeltaChunk, a_.width);
    token_prefetcher_.read({errors_of(at), dv_, 1}, 0, kDeltaChunk, a_.value_width);
    token_prefetcher_.read({weights_of(at), kDeltaChunk, 1}, 0, kDeltaChunk, kDeltaChunk);
    token_prefetcher_.read({state_of(at), d_, 1}, 0, a_.value_width, a_.width);
    token_prefetcher_.write(a_.tokens.d_k, at, kDeltaChunk, a_.width);
    token_prefetcher_.write(a_.tokens.d_v, at, kDeltaChunk, a_.value_width);
  }

  /// Prefetches the inputs of add_rows() for the rows before `row`.
  FOVEA_INLINE void prefetch_rows(const LinearGradRows<T>& head, Index row) {
    row_prefetcher_ = GradPrefetcher<T>(kDeltaChunk * (3 * d_ + dv_) + a_.width * dv_);
    const Index first = larger(0, row - kDeltaChunk);
    row_prefetcher_.read(head.q, first, row - first, a_.width);
    row_prefetcher_.read(head.d_out, first, row - first, a_.value_width);
    row_prefetcher_.write(head.d_q, first, row - first, a_.width);
  }

  /// Computes later chunks' contributions to the tokens of a chunk: R^T k' and R e.
  FOVEA_NOINLINE void read_d_state(Index count) {
    multiply_rows<ProductSteps::all, T>(
        {k_, d_, 1, d_state_, dv_, g_, dv_, a_.width, &token_prefetcher_}, count,
        in_whole_vectors<T>(a_.value_width));
    multiply_rows<ProductSteps::all, T>({d_state_, dv_, 1, errors_t_, kDeltaChunk, turned_,
                                         kDeltaChunk, a_.value_width, &token_prefetcher_},
                                        a_.width, in_whole_vectors<T>(count));
    lanes_to_rows(turned_, kDeltaChunk, d_keys_, d_, 1, count, a_.width);
    clear_padding(d_keys_, count);
  }

  /// Sets the padding columns to 0, as sums over rows require.
  FOVEA_INLINE void clear_padding(T* rows, Index count) const {
    for (Index i = 0; i < count; ++i) {
      for (Index c = a_.width; c < d_; ++c) rows[i * d_ + c] = 0;
    }
  }

  /// Computes rows [row, row + count) of a head, and their contributions to the tokens of the chunk
  /// and to R.
  FOVEA_NOINLINE void add_rows(Index h, Index row, Index count, Index at) {
    const LinearGradRows<T>& head = a_.rows[h];
    const Index offset = a_.first_position + row - at;
    const Index tokens = tokens_of(at);
    const Index width = in_whole_vectors<T>(a_.width);
    const Index value_width = in_whole_vectors<T>(a_.value_width);
    normalised_rows(a_.map, rows_from(head.q, row), count, a_.width, q_, q_slopes_);
    prefetch_rows(head, row);
    const Matrix<const T> d_out = weighted_rows<T>(rows_from(head.d_out, row), head.far_weight,
                                                   count, a_.value_width, {d_out_, dv_, 1});
    const auto [g, g_row, unit] = d_out;
    delta_weights(g, g_row, a_.value_width, errors_t_, count, offset + 1, d_products_);
    multiply_rows<ProductSteps::all, T>(
        {g, g_row, 1, state_of(at), d_, d_q_, d_, a_.value_width, &row_prefetcher_}, count, width);
    multiply_rows<ProductSteps::up_to_row, T>(
        {d_products_, kDeltaChunk, 1, keys_, d_, d_q_, d_, tokens, &row_prefetcher_, offset, true},
        count, width);
    clear_padding(d_q_, count);
    finish_rows(h, row, count);

    delta_weights(q_, d_, a_.width, k_t_, count, offset + 1, products_);
    multiply_rows<ProductSteps::from_row, T>(
        {products_, 1, kDeltaChunk, g, g_row, g_, dv_, count, &row_prefetcher_, offset, true},
        tokens, value_width);
    multiply_rows<ProductSteps::from_row, T>(
        {d_products_, 1, kDeltaChunk, q_, d_, d_keys_, d_, count, &row_prefetcher_, offset, true},
        tokens, width);
    if (!has_before(at)) return;
    multiply_rows<ProductSteps::all, T>(
        {q_, 1, d_, g, g_row, d_state_, dv_, count, &row_prefetcher_, 0, true}, a_.width,
        value_width);
  }

  /// Writes d_q, and the head's sum of products: dO . far = dq' . q', since far is linear in q'.
  FOVEA_INLINE void finish_rows(Index h, Index row, Index count) {
    const LinearGradRows<T>& head = a_.rows[h];
    T sum = 0;
    for (Index i = 0; i < count; ++i) {
      sum += through_features(q_ + i * d_, q_slopes_ + i * d_, d_, d_q_ + i * d_);
    }
    if (head.d_q.data != nullptr) {
      write_rows(d_q_, d_, T{1}, rows_from(head.d_q, row), count, a_.width, a_.accumulate);
    }
    if (head.d_out_times_out == nullptr) return;
    const T before = *head.d_out_times_out;
    const T y = sum + lost_products_[h];
    const T after = before + y;
    *head.d_out_times_out = after;
    lost_products_[h] = y - (after - before);
  }

  /// Computes -G, and the contributions of G to keys and to R.
  FOVEA_NOINLINE void add_errors(Index at, Index count) {
    const Index width = in_whole_vectors<T>(a_.width);
    const Index value_width = in_whole_vectors<T>(a_.value_width);
    for (Index t = 0; t < count; ++t) {
      const Vec<T> factor = set1(-beta_[t]);
      for (Index c = t * dv_; c < t * dv_ + value_width; c += kLanes<T>) {
        store(g_ + c, load(g_ + c) * factor);
      }
    }
    for_register_blocks<T>(count, value_width, [&]<int V>(Index column) {
      return ErrorGradients<V, T>{weights_of(at), g_ + column, dv_, count};
    });
    delta_weights(g_, dv_, a_.value_width, errors_t_, count, 0, d_products_);
    multiply_rows<ProductSteps::all, T>(
        {g_, dv_, 1, state_of(at), d_, d_k_, d_, a_.value_width, &token_prefetcher_}, count, width);
    multiply_rows<ProductSteps::up_to_row, T>(
        {d_products_, kDeltaChunk, 1, keys_, d_, d_k_, d_, count, &token_prefetcher_, -1, true},
        count, width);
    multiply_rows<ProductSteps::from_row, T>(
        {d_products_, 1, kDeltaChunk, k_, d_, d_keys_, d_, count, &token_prefetcher_, -1, true},
        count, width);
    if (!has_before(at)) return;
    multiply_rows<ProductSteps::all, T>(
        {k_, 1, d_, g_, dv_, d_state_, dv_, count, &token_prefetcher_, 0, true}, a_.width,
        value_width);
  }

  /// Writes d_k, d_v and d_beta.
  FOVEA_NOINLINE void write_tokens(Index at, Index count) {
    clear_padding(d_k_, count);
    for (Index t = 0; t < count; ++t) {
      const T* const d_keys = d_keys_ + t * d_;
      T* const d_k = d_k_ + t * d_;
      if (a_.d_beta.data != nullptr) {
        a_.d_beta.data[(at + t) * a_.d_beta.row] = row_product(d_keys, k_ + t * d_, d_);
      }
      const Vec<T> beta = set1(beta_[t]);
      for (Index c = 0; c < d_; c += kLanes<T>) {
        store(d_k + c, fma(load(d_keys + c), beta, load(d_k + c)));
      }
      through_features(k_ + t * d_, slopes_ + t * d_, d_, d_k);
    }
    const auto& [k, v, d_k, d_v, tokens] = a_.tokens;
    if (d_k.data != nullptr) {
      write_rows(d_k_, d_, T{1}, rows_from(d_k, at), count, a_.width, a_.accumulate);
    }
    if (d_v.data != nullptr) {
      write_rows(g_, dv_, T{-1}, rows_from(d_v, at), count, a_.value_width, a_.accumulate);
    }
  }

  const DeltaGradArgs<T>& a_;
  const Index d_;            // D padded
  const Index dv_;           // Dv padded
  const Index seen_tokens_;  // tokens seen by some row
  const Index blind_rows_;   // rows without visible tokens
  T* free_;
  T* states_;   // [chunks, Dv, d] S^T before each chunk
  T* errors_;   // [tokens, dv] E
  T* weights_;  // [tokens, kDeltaChunk] W
  T* d_state_;  // [D, dv] R
  T* lost_;     // [Dv, d] the rounding error of the state's sum
  // For the tokens of a chunk:
  T* k_;         // [kDeltaChunk, d] k'
  T* keys_;      // [kDeltaChunk, d] B
  T* slopes_;    // [kDeltaChunk, d] phi' / sum phi
  T* k_t_;       // [d, kDeltaChunk] k'
  T* errors_t_;  // [dv, kDeltaChunk] E
  T* turned_;    // [d or dv, kDeltaChunk]
  T* beta_;      // [kDeltaChunk]
  T* g_;         // [kDeltaChunk, dv] -G
  T* d_keys_;    // [kDeltaChunk, d] dB
  T* d_k_;       // [kDeltaChunk, d]
  // For rows:
  T* q_;           // [kDeltaChunk, d] q'
  T* q_slopes_;    // [kDeltaChunk, d]
  T* d_q_;         // [kDeltaChunk, d]
  T* d_out_;       // [kDeltaChunk, dv] dO
  T* products_;    // [kDeltaChunk, kDeltaChunk] q' . k'
  T* d_products_;  // [kDeltaChunk, kDeltaChunk] dO . e, then G . e
  GradPrefetcher<T> token_prefetcher_;
  GradPrefetcher<T> row_prefetcher_;
  T* lost_products_;  // [heads]
};

/// See DeltaGradArgs.
template <class T>
void delta_grad(const DeltaGradArgs<T>& args) noexcept {
  DeltaGrad<T>(args).run();
}
