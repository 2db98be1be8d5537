// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of causal Performer attention.
#pragma once

#include <array>
#include <vector>

#include "fovea/attention/linear/performer_backward_call.hpp"

FOVEA_NAMESPACE_BEGIN

/// The gradients of causal random features: first the rows of a query head, upwards with the state
/// of its tokens, and then the tokens of a key head, downwards with that of its rows, as in linear
/// attention. Features are made again for kFeatureRows tokens at a time, and are relative to the
/// references of the forward pass. Where one was raised the state of the tokens is multiplied on
/// the way up as it was there, and that of the rows on the way down: by no more than 1 either way.
template <class T>
class PerformerCausalBackward {
 public:
  /// What all parts of the pass have in common.
  using Call = PerformerBackwardCall<T>;

  /// \param call must outlive this object
  explicit PerformerCausalBackward(Call& call) : call_(call) {}

  /// Bytes of memory with that many workers.
  static Index bytes(const PerformerShape& shape, Index workers) {
    const Index elements =
        shape.batch * shape.query_heads * shape.queries * kRecord +
        shape.batch * shape.key_heads * blocks_of(shape.keys, 1) * padded_row<T>(shape.features) +
        workers * Slot(shape).elements;
    return padded_row<T>(elements) * Index{sizeof(T)} + Call::bytes(shape, parts(shape));
  }

  /// Computes the gradients.
  template <class E>
  void run(E&& executor) {
    auto&& memory = memory_of(executor);
    const PerformerShape& shape = call_.shape;
    const Index sequences = call_.sequences.count();
    const Index row_tasks = sequences * shape.query_heads;
    const Index key_tasks = sequences * shape.key_heads;
    call_.reserve(row_tasks + key_tasks, memory);
    blocks_ = blocks_of(shape.keys, call_.sequences.packed() ? sequences : 1);
    saved_ =
        memory.take(shape.batch * shape.query_heads * shape.queries, kRecord * Index{sizeof(T)});
    references_ = memory.take(shape.batch * shape.key_heads * blocks_,
                              padded_row<T>(shape.features) * Index{sizeof(T)});
    const Index workers = worker_count(executor, (std::max)(row_tasks, key_tasks));
    slot_.emplace(shape);
    scratch_ = memory.take(workers, slot_->elements * Index{sizeof(T)});
    rows_.resize(static_cast<std::size_t>(workers * call_.group()));
    memory.require();
    call_.begin();
    for_each_task(executor, row_tasks, [&](Index task, Index worker) {
      const Sequence s = call_.sequences[task / shape.query_heads];
      Worker at(*this, s, task % shape.query_heads / call_.group(), task, worker);
      if (at.tokens > 0) go_up(s, task % shape.query_heads, at);
    });
    if (call_.wants_keys()) {
      for_each_task(executor, key_tasks, [&](Index task, Index worker) {
        const Sequence s = call_.sequences[task / shape.key_heads];
        Worker at(*this, s, task % shape.key_heads, row_tasks + task, worker);
        if (at.tokens > 0 && call_.group() > 0) go_down(s, at);
      });
    }
    call_.finish();
  }

 private:
  static constexpr Index kRecord = 3;  // linear_grad_record without a floor

  static Index parts(const PerformerShape& shape) {
    return shape.batch * (shape.query_heads + shape.key_heads);
  }
  /// Blocks of kFeatureRows tokens of a key head.
  static Index blocks_of(Index keys, Index sequences) { return keys / kFeatureRows + sequences; }

  /// How the scratch of one worker is divided, in elements.
  struct Slot {
    explicit Slot(const PerformerShape& shape) {
      const Index group = detail::group_size(shape.query_heads, shape.key_heads);
      rows = kFeatureRows * padded_row<T>(shape.features);
      scratch = Call::scratch_elements(shape);
      carried = linear_grad_carried<T>(shape.features, shape.value_width);
      kernel = padded_row<T>(linear_grad_scratch<T>(shape.features, shape.value_width));
      elements = (4 + (std::max)(Index{1}, group)) * rows + padded_row<T>(shape.features) +
                 scratch + carried + kernel;
    }
    Index rows;
    Index scratch;
    Index carried;
    Index kernel;
    Index elements;
  };

  /// Tokens of a block that have one reference.
  struct Piece {
    Index first = 0;  // in the block
    Index tokens = 0;
    bool is_raised = false;  // by its first token
  };

  /// What one task works with.
  struct Worker {
    Worker(PerformerCausalBackward& of, const Sequence& s, Index of_head, Index of_part,
           Index worker)
        : key_head(of_head), part(of_part) {
      const Slot& slot = *of.slot_;
      keys = of.scratch_.template data<T>() + worker * slot.elements;
      references = keys + slot.rows;
      factors = references + slot.rows;
      d_features = factors + slot.rows;
      queries = d_features + slot.rows;
      running = queries + (std::max)(Index{1}, of.call_.group()) * slot.rows;
      scratch = running + padded_row<T>(of.call_.shape.features);
      carried = scratch + slot.scratch;
      kernel = carried + slot.carried;
      rows = of.rows_.data() + worker * of.call_.group();
      tokens = of.call_.visibility.seen(s);
      first_position = of.call_.visibility.first_position(s);
      unseeing = of.call_.unseeing(s);
    }
    /// The first row at a position or behind it that sees a token.
    Index row_at(const Sequence& s, Index position) const {
      return std::clamp(position - first_position, unseeing, s.queries);
    }

    Index key_head;
    Index part;
    T* keys;        // [kFeatureRows, row] features of a block's keys
    T* references;  // [kFeatureRows, row] of its pieces
    T* factors;     // [kFeatureRows, row] of its pieces
    T* d_features;  // [kFeatureRows, row]
    T* queries;     // [group, kFeatureRows, row]
    T* running;     // [row] the reference
    T* scratch;
    T* carried;
    T* kernel;
    LinearGradRows<T>* rows;  // [group]
    Index tokens;             // that rows see
    Index first_position;
    Index unseeing;  // first rows
    std::array<Piece, kFeatureRows> pieces;
    Index piece_count = 0;
    bool is_first = true;  // whether nothing is carried yet
  };

  Index row() const { return call_.features.row(); }

  /// Where the reference before a block of a key head is kept.
  T* kept_reference(const Sequence& s, Index key_head, Index block) {
    const Index before = call_.sequences.packed() ? s.first_key / kFeatureRows + s.index : 0;
    return references_.template data<T>() +
           ((s.batch * call_.shape.key_heads + key_head) * blocks_ + before + block) * row();
  }

  /// Makes the features of a block's keys, piece by piece, from the running reference on.
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
  LinearGradStripArgs<T> strip_of(const Worker& at) const {
    LinearGradStripArgs<T> args;
    args.of.width = call_.shape.features;
    args.of.value_width = call_.shape.value_width;
    args.of.maps = made_features<T>();
    args.of.rows = at.rows;
    args.of.scratch = at.kernel;
    args.carried = at.carried;
    args.is_first = at.is_first;
    return args;
  }

  /// Gives tokens to a strip.
  void set_tokens(const Sequence& s, Index block, const Piece& piece, const Worker& at,
                  LinearGradStripArgs<T>& args) const {
    const Index token = s.first_key + block * kFeatureRows + piece.first;
    LinearGradTokens<T>& tokens = args.of.tokens;
    tokens.k = {at.keys + piece.first * row(), row(), 1};
    tokens.v = Call::matrix(call_.inputs.v, s.batch, at.key_head, token);
    tokens.count = piece.tokens;
  }

  /// Gives rows of query heads [head, head + count) to a strip, and computes their features.
  /// \param first_position of the first row, counted from the strip's first token
  void set_rows(const Sequence& s, Index head, Index count, Index first, Index end,
                Index first_position, T* reference, const Worker& at,
                LinearGradStripArgs<T>& args) {
    const Index n = end - first;
    args.of.heads = n == 0 ? 0 : count;
    args.of.row_count = n;
    args.of.first_position = n == 0 ? 0 : first_position;
    const Index group = call_.group();
    const Index base = (call_.shape.queries * s.batch * call_.shape.key_heads +
                        at.key_head * s.queries + s.first_query * call_.shape.key_heads) *
                       group;
    args.of.saved = saved_.template data<T>() +
                    (base + first * group + (head - at.key_head * group) * n) * kRecord;
    for (Index g = 0; g < args.of.heads; ++g) {
      T* const features = at.queries + g * kFeatureRows * row();
      call_.features.queries(
          detail::head_matrix(call_.inputs.q, s.batch, head + g, s.first_query + first), n, 0,
          reference, features, at.scratch);
      LinearGradRows<T>& rows = at.rows[g];
      rows = {};
      rows.q = {features, row(), 1};
      rows.d_out = Call::matrix(call_.d_out, s.batch, head + g, s.first_query + first);
    }
  }

  /// The rows of one query head, with the state of the tokens.
  void go_up(const Sequence& s, Index head, Worker& at) {
    const Index blocks = (at.tokens + kFeatureRows - 1) / kFeatureRows;
    for (Index block = 0; block < blocks; ++block) {
      if (head % call_.group() == 0 && block > 0) {
        std::copy(at.running, at.running + row(), kept_reference(s, at.key_head, block));
      }
      make_keys(s, block, at);
      for (Index p = 0; p < at.piece_count; ++p) {
        const Piece& piece = at.pieces[static_cast<std::size_t>(p)];
        if (piece.is_raised && !at.is_first) scale(p, false, at);
        LinearGradStripArgs<T> args = strip_of(at);
        set_tokens(s, block, piece, at, args);
        const Index position = block * kFeatureRows + piece.first;
        const Index first = at.row_at(s, position);
        rows_up(s, head, first, at.row_at(s, position + piece.tokens),
                at.first_position + first - position, at.references + p * row(), at, args);
      }
    }
    for (Index first = at.row_at(s, at.tokens); first < s.queries; first += kFeatureRows) {
      LinearGradStripArgs<T> args = strip_of(at);
      rows_up(s, head, first, (std::min)(first + kFeatureRows, s.queries), 0, at.running, at, args);
    }
  }

  void rows_up(const Sequence& s, Index head, Index first, Index end, Index first_position,
               T* reference, Worker& at, LinearGradStripArgs<T>& args) {
    set_rows(s, head, 1, first, end, first_position, reference, at, args);
    if (call_.wants_queries()) at.rows[0].d_q = {at.d_features, row(), 1};
    LinearGradKernels<T>{}.strip_rows(args);
    at.is_first = false;
    if (end == first || !call_.wants_queries()) return;
    call_.finish_rows(Call::matrix(call_.inputs.q, s.batch, head, s.first_query + first),
                      Call::matrix(call_.grads.q, s.batch, head, s.first_query + first),
                      end - first, false, at.queries, at.d_features, at.part, at.scratch);
  }

  /// The tokens of one key head, with the state of the rows.
  void go_down(const Sequence& s, Worker& at) {
    const Index behind = at.row_at(s, at.tokens);
    Index block = (at.tokens - 1) / kFeatureRows;
    take_block(s, block, at);
    for (Index n = (s.queries - behind + kFeatureRows - 1) / kFeatureRows; n-- > 0;) {
      const Index first = behind + n * kFeatureRows;
      LinearGradStripArgs<T> args = strip_of(at);
      // No token's gradient is written, but their sums are wanted.
      if (call_.wants_features()) args.of.tokens.d_k = {at.d_features, row(), 1};
      set_rows(s, at.key_head * call_.group(), call_.group(), first,
               (std::min)(first + kFeatureRows, s.queries), 0, at.running, at, args);
      LinearGradKernels<T>{}.strip_keys(args);
      at.is_first = false;
    }
    for (;; take_block(s, --block, at)) {
      for (Index p = at.piece_count; p-- > 0;) {
        piece_down(s, block, p, at);
        if (at.pieces[static_cast<std::size_t>(p)].is_raised) scale(p, true, at);
      }
      if (block == 0) return;
    }
  }

  /// Makes the keys of a block from the reference that was kept.
  void take_block(const Sequence& s, Index block, Worker& at) {
    if (block > 0) {
      const T* const kept = kept_reference(s, at.key_head, block);
      std::copy(kept, kept + row(), at.running);
    }
    make_keys(s, block, at);
  }

  void piece_down(const Sequence& s, Index block, Index p, Worker& at) {
    const Piece& piece = at.pieces[static_cast<std::size_t>(p)];
    const Index position = block * kFeatureRows + piece.first;
    const Index token = s.first_key + position;
    const Index first = at.row_at(s, position);
    LinearGradStripArgs<T> args = strip_of(at);
    set_tokens(s, block, piece, at, args);
    if (call_.wants_features()) args.of.tokens.d_k = {at.d_features, row(), 1};
    args.of.tokens.d_v = Call::matrix(call_.grads.v, s.batch, at.key_head, token);
    set_rows(s, at.key_head * call_.group(), call_.group(), first,
             at.row_at(s, position + piece.tokens), at.first_position + first - position,
             at.references + p * row(), at, args);
    LinearGradKernels<T>{}.strip_keys(args);
    at.is_first = false;
    if (!call_.wants_features()) return;
    call_.finish_rows(Call::matrix(call_.inputs.k, s.batch, at.key_head, token),
                      Call::matrix(call_.grads.k, s.batch, at.key_head, token), piece.tokens, true,
                      at.keys + piece.first * row(), at.d_features, at.part, at.scratch);
  }

  void scale(Index p, bool is_down, const Worker& at) const {
    RandomFeatureGradKernels<T>{}.scale({at.carried, call_.shape.features, call_.shape.value_width,
                                         is_down, at.factors + p * row()});
  }

  Call& call_;
  Index blocks_ = 0;      // of a key head
  Workspace saved_;       // [B, key heads, Nq, group] records, by strips
  Workspace references_;  // [B, Hk, blocks_, row] before each block
  std::optional<Slot> slot_;
  Workspace scratch_;                    // [workers]
  std::vector<LinearGradRows<T>> rows_;  // [workers, group]
};

FOVEA_NAMESPACE_END
