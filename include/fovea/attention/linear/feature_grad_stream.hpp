// SPDX-License-Identifier: MIT
/// \file
/// The two steps of the backward pass of causal Performer attention over a span of the sequence.
#pragma once

#include <algorithm>
#include <array>

#include "fovea/attention/linear/performer_backward_call.hpp"

FOVEA_NAMESPACE_BEGIN

/// The steps of one call: a query head's rows, upwards with the state of its tokens, and a key
/// head's tokens, downwards with the state of its rows. Features are recomputed for kFeatureRows
/// tokens at a time, relative to the references of the forward pass. Where a reference was raised,
/// the tokens' state is scaled on the way up as in the forward pass, and the rows' state on the way
/// down: by at most 1 either way.
///
/// A span is a range of positions that begins at a multiple of kFeatureRows, and ends at one or
/// with the sequence. Consecutive spans give the same bits as a single one, if states are passed
/// on. Rows after the last token are also processed in blocks of kFeatureRows, from that token on:
/// a block belongs to the span of its first row, which reads all of its rows, and also writes d_q
/// of those beyond the span. These have the same bits in their own span.
template <class T>
class FeatureGradStream {
 public:
  /// The common part of the pass.
  using Call = PerformerBackwardCall<T>;

  /// The numbers kept for one row of a query head between the steps (linear_grad_record without a
  /// floor).
  static constexpr Index kRecord = 3;
  /// The span of all positions.
  static constexpr Range kAll = {0, kFarPosition};

  /// One head's memory.
  struct Memory {
    T* carried = nullptr;    ///< [carried_elements] the state; uninitialised at first
    T* reference = nullptr;  ///< [R padded] upwards the running reference, a part of the state
    T* part = nullptr;       ///< part of the projection's gradient; null: not wanted
    /// [blocks of the span, R padded], kept for `down`: the reference before each block
    T* references = nullptr;
    /// [rows of the span and kFeatureRows - 1 after it, group, kRecord], kept for `down`
    T* saved = nullptr;
    T* scratch = nullptr;               ///< [scratch_elements]
    LinearGradRows<T>* rows = nullptr;  ///< [group]
  };

  /// \param call must outlive this object
  explicit FeatureGradStream(Call& call) : call_(call), slot_(call.shape) {}

  /// Elements of a state without its reference.
  static Index carried_elements(const PerformerShape& shape) {
    return linear_grad_carried<T>(shape.features, shape.value_width);
  }
  /// Elements of scratch.
  static Index scratch_elements(const PerformerShape& shape) {
    return WorkerScratch(shape).elements;
  }

  /// The rows of one query head in a span.
  /// \pre a token is visible, and the queries are at the positions of keys unless the span is kAll
  void up(const Sequence& s, Index head, const Range& span, const Memory& memory) {
    Worker at(*this, s, head / call_.group(), span, memory);
    const bool keeps = head % call_.group() == 0;
    const auto keep = [&](Index block) {
      if (keeps && block > 0) std::copy_n(at.running, row(), kept_reference(block, at));
    };
    if (span.begin >= at.tokens) keep(span.begin / kFeatureRows);
    for (Index block = span.begin / kFeatureRows; block * kFeatureRows < at.tokens_end(); ++block) {
      keep(block);
      make_keys(s, block, at);
      for (Index p = 0; p < at.piece_count; ++p) piece_up(s, head, block, p, at);
    }
    const Index behind = at.row_at(s, at.tokens);
    const Range blocks = at.blocks_behind(s);
    const auto tail = [&](Index first, Index end, T* part) {
      LinearGradBlockArgs<T> args = row_block_of(at, false);
      set_rows(s, head, 1, first, end, 0, at.running, at, args);
      rows_up(s, head, first, end, part, at, args);
    };
    // The rows of a block begun by another span.
    const Index begun = (std::max)(behind, span.begin);
    const Index own = (std::min)(behind + blocks.begin * kFeatureRows, s.queries);
    if (begun < own) tail(begun, own, nullptr);
    for (Index n = blocks.begin; n < blocks.end; ++n) {
      const Index first = behind + n * kFeatureRows;
      tail(first, (std::min)(first + kFeatureRows, s.queries), memory.part);
    }
  }

  /// The tokens of one key head in a span. \pre `up` was called for its first query head
  void down(const Sequence& s, Index key_head, const Range& span, const Memory& memory) {
    Worker at(*this, s, key_head, span, memory);
    const Index first_block = span.begin / kFeatureRows;
    const bool has_tokens = span.begin < at.tokens;
    Index block = has_tokens ? (at.tokens_end() - 1) / kFeatureRows : first_block;
    take_reference(block, at);
    if (has_tokens) make_keys(s, block, at);
    const Range blocks = at.blocks_behind(s);
    for (Index n = blocks.end; n-- > blocks.begin;) tail_down(s, n, at);
    while (has_tokens) {
      for (Index p = at.piece_count; p-- > 0;) {
        piece_down(s, block, p, at);
        if (at.pieces[static_cast<std::size_t>(p)].is_raised) scale(p, true, at);
      }
      if (block == first_block) return;
      take_reference(--block, at);
      make_keys(s, block, at);
    }
  }

 private:
  /// How the scratch of one worker is divided, in elements.
  struct WorkerScratch {
    explicit WorkerScratch(const PerformerShape& shape) {
      const Index group = detail::group_size(shape.query_heads, shape.key_heads);
      rows = kFeatureRows * padded_row<T>(shape.features);
      scratch = Call::scratch_elements(shape);
      const Index kernel = padded_row<T>(linear_grad_scratch<T>(shape.features, shape.value_width));
      elements = (4 + (std::max)(Index{1}, group)) * rows + scratch + kernel;
    }
    Index rows;
    Index scratch;
    Index elements;
  };

  /// Tokens of a block that have one reference.
  struct Piece {
    Index first = 0;  // in the block
    Index tokens = 0;
    bool is_raised = false;  // by its first token
  };

  /// The memory of one step of a head.
  struct Worker {
    Worker(const FeatureGradStream& of, const Sequence& s, Index of_head, const Range& of_span,
           const Memory& of_memory)
        : key_head(of_head), span(of_span), memory(of_memory), running(of_memory.reference) {
      const Index row = of.slot_.rows;
      keys = memory.scratch;
      references = keys + row;
      factors = references + row;
      d_features = factors + row;
      queries = d_features + row;
      scratch = queries + (std::max)(Index{1}, of.call_.group()) * row;
      kernel = scratch + of.slot_.scratch;
      tokens = of.call_.visibility.seen(s);
      first_position = s.first_position;
      unseeing = of.call_.unseeing(s);
    }
    /// The first row at or after a position that sees a token.
    Index row_at(const Sequence& s, Index position) const {
      return std::clamp(position - first_position, unseeing, s.queries);
    }
    /// One past the last token of the span.
    Index tokens_end() const { return (std::min)(span.end, tokens); }
    /// The blocks of rows after the last token that begin in the span.
    Range blocks_behind(const Sequence& s) const {
      const Index behind = row_at(s, tokens);
      const auto blocks = [&](Index row) {
        return ((std::max)(row, behind) - behind + kFeatureRows - 1) / kFeatureRows;
      };
      return {blocks(span.begin), blocks((std::min)(span.end, s.queries))};
    }

    Index key_head;
    Range span;
    const Memory& memory;
    T* running;     // [row] the reference
    T* keys;        // [kFeatureRows, row] features of a block's keys
    T* references;  // [kFeatureRows, row] of its pieces
    T* factors;     // [kFeatureRows, row] of its pieces
    T* d_features;  // [kFeatureRows, row]
    T* queries;     // [group, kFeatureRows, row]
    T* scratch;
    T* kernel;
    Index tokens;  // that rows see
    Index first_position;
    Index unseeing;  // first rows
    std::array<Piece, kFeatureRows> pieces;
    Index piece_count = 0;
  };

  Index row() const { return call_.features.row(); }

  /// Where the reference before a block of the span is kept.
  T* kept_reference(Index block, const Worker& at) const {
    return at.memory.references + (block - at.span.begin / kFeatureRows) * row();
  }
  void take_reference(Index block, const Worker& at) const {
    if (block > 0) std::copy_n(kept_reference(block, at), row(), at.running);
  }

  /// Computes the features of a block's keys, piece by piece, starting with the running reference.
  void make_keys(const Sequence& s, Index block, Worker& at) {
    const Index begin = block * kFeatureRows;
    const Index count = (std::min)(kFeatureRows, at.tokens - begin);
    call_.features.logits(
        detail::head_matrix(call_.inputs.k, s.batch, at.key_head, s.first_key + begin), count, 0,
        true, at.keys, at.scratch);
    const RandomFeatureKernels<T> kernels;
    at.piece_count = 0;
    for (Index first = 0; first < count;) {
      Piece& piece = at.pieces[static_cast<std::size_t>(at.piece_count)];
      const Index place = at.piece_count * row();
      FeatureRowsArgs<T> args;
      args.rows = at.keys + first * row();
      args.count = count - first;
      args.features = call_.shape.features;
      args.reference = at.running;
      if (begin + first > 0) kernels.keys(args);
      piece = {first, args.mapped, args.mapped == 0};
      if (piece.is_raised) {
        kernels.raise(
            {args.rows, args.features, at.running, begin + first == 0, at.factors + place});
        kernels.keys(args);
        piece.tokens = args.mapped;
      }
      std::copy(at.running, at.running + row(), at.references + place);
      first += piece.tokens;
      ++at.piece_count;
    }
  }

  /// The arguments of a piece: no tokens, no rows.
  LinearGradBlockArgs<T> row_block_of(const Worker& at, bool is_first) const {
    LinearGradBlockArgs<T> args;
    args.of.width = call_.shape.features;
    args.of.value_width = call_.shape.value_width;
    args.of.maps = made_features<T>();
    args.of.rows = at.memory.rows;
    args.of.scratch = at.kernel;
    args.carried = at.memory.carried;
    args.is_first = is_first;
    return args;
  }

  /// Adds tokens to a row block.
  void set_tokens(const Sequence& s, Index block, const Piece& piece, const Worker& at,
                  LinearGradBlockArgs<T>& args) const {
    const Index token = s.first_key + block * kFeatureRows + piece.first;
    LinearGradTokens<T>& tokens = args.of.tokens;
    tokens.k = {at.keys + piece.first * row(), row(), 1};
    tokens.v = Call::matrix(call_.inputs.v, s.batch, at.key_head, token);
    tokens.count = piece.tokens;
  }

  /// Adds rows of query heads [head, head + count) to a row block, and computes their features.
  /// \param first_position of the first row, counted from the row block's first token
  void set_rows(const Sequence& s, Index head, Index count, Index first, Index end,
                Index first_position, T* reference, const Worker& at,
                LinearGradBlockArgs<T>& args) {
    const Index n = end - first;
    args.of.heads = n == 0 ? 0 : count;
    args.of.row_count = n;
    args.of.first_position = n == 0 ? 0 : first_position;
    const Index group = call_.group();
    const Index before = (first - at.span.begin) * group + (head - at.key_head * group) * n;
    args.of.saved = at.memory.saved + before * kRecord;
    for (Index g = 0; g < args.of.heads; ++g) {
      T* const features = at.queries + g * kFeatureRows * row();
      call_.features.queries(
          detail::head_matrix(call_.inputs.q, s.batch, head + g, s.first_query + first), n, 0,
          reference, features, at.scratch);
      LinearGradRows<T>& rows = at.memory.rows[g];
      rows = {};
      rows.q = {features, row(), 1};
      rows.d_out = Call::matrix(call_.d_out, s.batch, head + g, s.first_query + first);
    }
  }

  void piece_up(const Sequence& s, Index head, Index block, Index p, Worker& at) {
    const Piece& piece = at.pieces[static_cast<std::size_t>(p)];
    const Index position = block * kFeatureRows + piece.first;
    if (piece.is_raised && position > 0) scale(p, false, at);
    LinearGradBlockArgs<T> args = row_block_of(at, position == 0);
    set_tokens(s, block, piece, at, args);
    const Index first = at.row_at(s, position);
    const Index end = at.row_at(s, position + piece.tokens);
    set_rows(s, head, 1, first, end, at.first_position + first - position,
             at.references + p * row(), at, args);
    rows_up(s, head, first, end, at.memory.part, at, args);
  }

  void rows_up(const Sequence& s, Index head, Index first, Index end, T* part, Worker& at,
               LinearGradBlockArgs<T>& args) {
    if (call_.wants_queries()) at.memory.rows[0].d_q = {at.d_features, row(), 1};
    LinearGradKernels<T>{}.block_of_rows(args);
    if (end == first || !call_.wants_queries()) return;
    call_.finish_rows(Call::matrix(call_.inputs.q, s.batch, head, s.first_query + first),
                      Call::matrix(call_.grads.q, s.batch, head, s.first_query + first),
                      end - first, false, at.queries, at.d_features, part, at.scratch);
  }

  void piece_down(const Sequence& s, Index block, Index p, Worker& at) {
    const Piece& piece = at.pieces[static_cast<std::size_t>(p)];
    const Index position = block * kFeatureRows + piece.first;
    const Index token = s.first_key + position;
    const Index first = at.row_at(s, position);
    const Index end = at.row_at(s, position + piece.tokens);
    const bool is_last = position + piece.tokens == at.tokens;
    LinearGradBlockArgs<T> args = row_block_of(at, is_last && at.row_at(s, at.tokens) == s.queries);
    set_tokens(s, block, piece, at, args);
    if (call_.wants_features()) args.of.tokens.d_k = {at.d_features, row(), 1};
    args.of.tokens.d_v = Call::matrix(call_.grads.v, s.batch, at.key_head, token);
    set_rows(s, at.key_head * call_.group(), call_.group(), first, end,
             at.first_position + first - position, at.references + p * row(), at, args);
    LinearGradKernels<T>{}.block_of_keys(args);
    if (!call_.wants_features()) return;
    call_.finish_rows(Call::matrix(call_.inputs.k, s.batch, at.key_head, token),
                      Call::matrix(call_.grads.k, s.batch, at.key_head, token), piece.tokens, true,
                      at.keys + piece.first * row(), at.d_features, at.memory.part, at.scratch);
  }

  /// Block n of the rows after the last token.
  void tail_down(const Sequence& s, Index n, Worker& at) {
    const Index first = at.row_at(s, at.tokens) + n * kFeatureRows;
    const Index end = (std::min)(first + kFeatureRows, s.queries);
    LinearGradBlockArgs<T> args = row_block_of(at, end == s.queries);
    // No token's gradient is written, but their sums are needed.
    if (call_.wants_features()) args.of.tokens.d_k = {at.d_features, row(), 1};
    set_rows(s, at.key_head * call_.group(), call_.group(), first, end, 0, at.running, at, args);
    LinearGradKernels<T>{}.block_of_keys(args);
  }

  void scale(Index p, bool is_down, const Worker& at) const {
    RandomFeatureGradKernels<T>{}.scale({at.memory.carried, call_.shape.features,
                                         call_.shape.value_width, is_down, at.factors + p * row()});
  }

  Call& call_;
  WorkerScratch slot_;
};

FOVEA_NAMESPACE_END
