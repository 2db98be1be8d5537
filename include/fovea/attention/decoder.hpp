// SPDX-License-Identifier: MIT
/// \file
/// Incremental softmax attention: a key/value cache and the attention of the last positions over
/// it. Tests: tests/attention/decoder_test.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "fovea/attention/check.hpp"
#include "fovea/attention/key_value_cache.hpp"
#include "fovea/attention/softmax_call.hpp"
#include "fovea/attention/split_rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Rows [first, first + count) of a tensor; all of one that is none or has one row for all.
template <class T>
View<T> slice_rows(const View<T>& x, Index first, Index count) {
  if (x.is_none() || x.rows() == 1) return x;
  Shape shape = x.shape();
  shape[2] = count;
  return {head_row(x, 0, 0, first), shape, x.strides()};
}

}  // namespace detail

/// What `op.decoder<T>(shape)` makes of a softmax operator `Op`: a growing sequence of tokens, and
/// the attention of its last positions.
/// `step` gives, bit for bit, what `op.forward` gives for the same queries and all keys so far,
/// whatever the tokens were appended in, and for any number of threads.
/// Memory: twice the tokens at most; under a window of `left` keys that of about 2 (left + right +
/// min(left, 512)) tokens, however long the sequence.
/// Not to be called from several threads at once. Errors are std::invalid_argument, or
/// std::bad_alloc, and leave the decoder and the outputs as they were.
template <class Op, class T>
class Decoder {
 public:
  /// \throws std::invalid_argument options or sizes that make no decoder; std::bad_alloc for
  /// shape.reserve
  Decoder(const Op& op, const DecoderShape& shape)
      : op_(op), shape_(shape), cache_(checked_cache_shape()) {
    if (shape.reserve > 0) cache_.reserve(shape.reserve);
  }

  /// Tokens so far.
  Index length() const { return cache_.length(); }

  /// Bytes of keys, values and scratch.
  Index memory_bytes() const { return cache_.memory_bytes() + scratch_.size_bytes(); }

  /// Adds n tokens. \param k [B, Hk, n, D]   \param v [B, Hk, n, Dv]
  void append(const View<const T>& k, const View<const T>& v) {
    check_tokens(k, v);
    cache_.make_room(length() + k.rows());
    cache_.append(k, v, 0, k.rows());
  }

  /// Attention of the last n positions; with k and v in the inputs, once those are appended.
  /// \param inputs q [B, Hq, n, D]; as in `forward` bias, mask, alibi_slopes and sink, where Nk is
  ///               the length after appending
  /// \param out [B, Hq, n, Dv], every element written
  /// Cost: that of `forward`; for few rows K and V are read once, by all threads.
  template <class Out>
  void step(const Inputs<T>& inputs, Out&& out) {
    step(inputs, View<T>(out), Saved<T>{}, Serial{});
  }

  /// \param saved as in `forward`
  template <class Out>
  void step(const Inputs<T>& inputs, Out&& out, const Saved<T>& saved) {
    step(inputs, View<T>(out), saved, Serial{});
  }

  /// \param executor as in `forward`
  template <class Out, class E>
  requires(!std::convertible_to<E, Saved<T>>) void step(const Inputs<T>& inputs, Out&& out,
                                                        E&& executor) {
    step(inputs, View<T>(out), Saved<T>{}, executor);
  }

  template <class Out, class E>
  void step(const Inputs<T>& inputs, Out&& out, const Saved<T>& saved, E&& executor) {
    const View<T> to(out);
    check_step(inputs, to, saved);
    if (is_small(inputs)) {
      run(inputs, to, saved, Serial{});
    } else {
      run(inputs, to, saved, as_executor(executor));
    }
  }

  /// Forgets the tokens from position `length` on. Under a window, at least the last
  /// `rollback_tokens` can be forgotten, or all.
  void rollback(Index length) {
    const Index before = this->length();
    if (length < 0 || length > before) {
      refuse(Op::name(), "rollback", std::to_string(length),
             "0 to " + std::to_string(before) + ", the tokens in the decoder");
    }
    const Index needed = std::max(Index{0}, length - 1 - left());
    if (length > 0 && length < before && needed < cache_.first_held()) {
      refuse(Op::name(), "rollback", std::to_string(length),
             "at least " + std::to_string(cache_.first_held() + left() + 1) +
                 ", or 0: earlier keys of the window are gone (see rollback_tokens)");
    }
    cache_.truncate(length);
  }

  /// Forgets all tokens and keeps the memory.
  void clear() noexcept { cache_.truncate(0); }

  /// Takes memory for that many tokens in all.
  void reserve(Index tokens) {
    check_at_least_0("reserve", tokens);
    cache_.reserve(tokens);
  }

  /// A decoder of its own with the same tokens, in memory for these alone.
  Decoder fork() const { return Decoder(*this, cache_.copy()); }

 private:
  Decoder(const Decoder& other, KeyValueCache<T> cache)
      : op_(other.op_), shape_(other.shape_), cache_(std::move(cache)) {}

  /// Keys before a query that it may see.
  Index left() const { return op_.pattern().left; }
  bool has_right_end() const { return op_.pattern().right < kFar; }
  Index right() const { return has_right_end() ? op_.pattern().right : 0; }
  /// Tokens that a ring holds at least, beyond those that one query sees.
  Index slack() const {
    return std::clamp<Index>(left(), 64, kMaxBlockRows) + shape_.rollback_tokens;
  }

  void check_at_least_0(const char* what, Index x) const {
    if (x < 0) refuse(Op::name(), what, std::to_string(x), "at least 0");
  }

  typename KeyValueCache<T>::Shape checked_cache_shape() const {
    op_.check_options();
    check_softmax_options<Compute<T>>(Op::name(), op_.softmax_options());
    if (op_.softmax_options().alignment != CausalAlignment::bottom_right) {
      refuse(Op::name(), "alignment", "top_left",
             "bottom_right in a decoder, whose queries end where its keys end");
    }
    check_at_least_0("batch", shape_.batch);
    check_at_least_0("query_heads", shape_.query_heads);
    check_at_least_0("key_heads", shape_.key_heads);
    check_at_least_0("width", shape_.width);
    check_at_least_0("value_width", shape_.value_width);
    check_at_least_0("reserve", shape_.reserve);
    check_at_least_0("rollback_tokens", shape_.rollback_tokens);
    const Index heads = shape_.key_heads;
    if (heads == 0 ? shape_.query_heads != 0 : shape_.query_heads % heads != 0) {
      refuse(Op::name(), "key_heads", std::to_string(heads),
             "a divisor of " + std::to_string(shape_.query_heads) + ", query_heads");
    }
    const bool ring = left() < kFar && shape_.rollback_tokens < kFar;
    return {shape_.batch, heads, shape_.width, shape_.value_width,
            ring ? left() + right() + 1 + slack() : KeyValueCache<T>::kAll};
  }

  static void check_extent(const char* tensor, const Shape& shape, std::size_t d, Index expected,
                           std::string_view whose) {
    detail::check_extent(Op::name(), tensor, shape, d, expected, whose);
  }

  void check_tokens(const View<const T>& k, const View<const T>& v) const {
    for (const auto& [tensor, x] : {std::pair{"k", &k}, std::pair{"v", &v}}) {
      check_extent(tensor, x->shape(), 0, shape_.batch, "the batch of the decoder");
      check_extent(tensor, x->shape(), 1, shape_.key_heads, "the key_heads of the decoder");
    }
    check_extent("k", k.shape(), 3, shape_.width, "the width of the decoder");
    check_extent("v", v.shape(), 3, shape_.value_width, "the value_width of the decoder");
    check_extent("v", v.shape(), 2, k.rows(), "the rows of k");
    const Index most = kFar - length();
    if (k.rows() > most) {
      refuse(Op::name(), "rows of k", std::to_string(k.rows()), "at most " + std::to_string(most));
    }
  }

  static bool appends(const Inputs<T>& inputs) {
    return !inputs.k.is_none() || !inputs.v.is_none();
  }
  Index length_after(const Inputs<T>& inputs) const {
    return length() + (appends(inputs) ? inputs.k.rows() : 0);
  }

  void check_step(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved) const {
    const auto& q = inputs.q;
    check_extent("q", q.shape(), 0, shape_.batch, "the batch of the decoder");
    check_extent("q", q.shape(), 1, shape_.query_heads, "the query_heads of the decoder");
    check_extent("q", q.shape(), 3, shape_.width, "the width of the decoder");
    if (appends(inputs)) check_tokens(inputs.k, inputs.v);
    if (!inputs.key_lengths.empty())
      refuse(Op::name(), "key_lengths", "given", "none in a decoder");
    if (!inputs.cu_seqlens_q.empty() || !inputs.cu_seqlens_k.empty()) {
      refuse(Op::name(), "cu_seqlens", "given", "none in a decoder");
    }
    const Index after = length_after(inputs);
    if (after == 0) refuse(Op::name(), "the length of the decoder", "0", "at least one token");
    if (q.rows() > after) {
      refuse(Op::name(), "rows of q", std::to_string(q.rows()),
             "at most " + std::to_string(after) + ", the tokens in the decoder");
    }
    check_held(q.rows(), after);
    // Of k and v only the sizes matter now: one element stands for all.
    static const T element{};
    Inputs<T> all = inputs;
    all.k = {&element, {shape_.batch, shape_.key_heads, after, shape_.width}, {}};
    all.v = {&element, {shape_.batch, shape_.key_heads, after, shape_.value_width}, {}};
    op_.check(all, out, saved);
    check_apart(inputs, "out", out);
    check_apart(inputs, "lse", saved.lse);
  }

  template <class U>
  static void check_apart(const Inputs<T>& inputs, const char* name, const View<U>& written) {
    detail::check_apart(Op::name(), name, written, "k", inputs.k);
    detail::check_apart(Op::name(), name, written, "v", inputs.v);
  }

  /// The keys that the queries see must be held, and without an end on the right all at once.
  void check_held(Index rows, Index after) const {
    const Index kept = cache_.shape().kept;
    if (kept == KeyValueCache<T>::kAll) return;
    Index most = after;
    if (cache_.first_held() > 0) most = after - left() - cache_.first_held();
    if (!has_right_end() && after > kept) most = std::min(most, kept - left());
    if (rows > most) {
      refuse(Op::name(), "rows of q", std::to_string(rows),
             "at most " + std::to_string(most) + ": earlier keys of the window are gone");
    }
  }

  /// Queries that a ring serves at once.
  Index most_rows() const {
    const Index kept = cache_.shape().kept;
    if (kept == KeyValueCache<T>::kAll || !has_right_end()) return kFar;
    return kept - left() - right() - 1;  // slack(): whole blocks
  }

  /// Whether the keys of a row are shared out over threads: few rows, and no band, which the block
  /// kernel sums in another order.
  bool splits(Index rows) const {
    return shape_.key_heads > 0 && op_.pattern().most_keys() > kBandKeys &&
           rows * (shape_.query_heads / shape_.key_heads) <= kMostRows && rows <= most_rows();
  }

  /// Whether the call is done before another thread would be awake: a few microseconds.
  bool is_small(const Inputs<T>& inputs) const {
    constexpr double most_products = 1 << 16;
    const Index keys = std::min(length_after(inputs), op_.pattern().most_keys());
    return static_cast<double>(heads()) * static_cast<double>(inputs.q.rows()) *
               static_cast<double>(keys) * static_cast<double>(shape_.width + shape_.value_width) <=
           most_products;
  }

  /// Some of the query rows, and where they stand.
  struct Piece {
    Inputs<T> inputs;
    View<T> out;
    Saved<T> saved;
    Index position;  // of the first of them
    Index keys;      // of the sequence
    bool split;      // each segment of keys is a task
  };

  /// Everything is checked. The memory is taken first, then the tokens, and then nothing throws.
  template <class E>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved, E&& executor) {
    const Index after = length_after(inputs);
    const Index rows = heads() > 0 ? inputs.q.rows() : 0;
    const Index at_once = std::min(rows, most_rows());
    const bool split = splits(rows);
    cache_.make_room(after);
    if (rows > 0) take_scratch(at_once, after, split, executor);
    Index taken = 0;  // of the rows of k
    const auto append_to = [&](Index end) {
      const Index count = std::max(Index{0}, end - length());
      cache_.append(inputs.k, inputs.v, taken, count);
      taken += count;
    };
    for (Index row = 0; row < rows; row += at_once) {
      const Index count = std::min(at_once, rows - row);
      const Index position = after - rows + row;
      append_to(at_once == rows ? after : std::min(after, position + count + right()));
      Piece piece{inputs, detail::slice_rows(out, row, count), saved, position, after, split};
      piece.inputs.q = detail::slice_rows(inputs.q, row, count);
      piece.inputs.bias = detail::slice_rows(inputs.bias, row, count);
      piece.inputs.mask = detail::slice_rows(inputs.mask, row, count);
      piece.saved.lse = detail::slice_rows(saved.lse, row, count);
      attend(piece, executor);
    }
    append_to(after);
  }

  /// The rows from a position on, in a sequence of that many keys.
  auto plan(Index rows, Index position, Index keys) const {
    return op_.pattern().plan(SequenceShape{rows, keys, position});
  }

  SplitRows<Compute<T>> split_rows(const QueryBlock& block) const {
    return {{shape_.batch, shape_.key_heads, shape_.query_heads / shape_.key_heads, shape_.width,
             shape_.value_width},
            block};
  }

  Index heads() const { return shape_.batch * shape_.query_heads; }
  /// Of one worker, if rows are not split.
  Index slot_bytes(Index rows) const {
    return softmax_block_scratch(block_rows(rows), shape_.width, shape_.value_width) *
           Index{sizeof(Compute<T>)};
  }

  template <class E>
  void take_scratch(Index rows, Index keys, bool split, E&& executor) {
    const auto plan = this->plan(rows, keys - rows, keys);
    Index bytes = 0;
    if (split) {
      BlockStorage storage;
      const auto rows_of_call = split_rows(plan.block(0, storage));
      bytes = rows_of_call.scratch_bytes(worker_count(executor, rows_of_call.task_count()));
    } else {
      bytes = worker_count(executor, heads() * plan.block_count()) * slot_bytes(rows);
    }
    if (bytes > scratch_.size_bytes()) scratch_ = Workspace(bytes);
  }

  template <class E>
  void attend(const Piece& piece, E&& executor) {
    const Index rows = piece.inputs.q.rows();
    const Index first = left() < kFar ? std::max(Index{0}, piece.position - left()) : 0;
    Inputs<T> inputs = piece.inputs;
    inputs.k = cache_.keys(first, length() - first);
    inputs.v = cache_.values(first, length() - first);
    const SoftmaxCall call(inputs, op_.softmax_options(), op_.pattern());
    const auto head = [&](Index b, Index h) {
      auto args = call.args(call.sequences()[b], h, piece.out, piece.saved);
      args.first_position = piece.position;
      args.key_base = first;
      args.key_end = piece.keys;
      return args;
    };
    const auto plan = this->plan(rows, piece.position, piece.keys);
    auto* const scratch = scratch_.template data<std::byte>();
    if (piece.split) {
      BlockStorage storage;
      split_rows(plan.block(0, storage)).run(head, scratch, executor);
      return;
    }
    const Index blocks = plan.block_count();
    const KernelTable<Compute<T>>& table = kernels<Compute<T>>();
    for_each_task(executor, heads() * blocks, [&](Index task, Index worker) {
      const Index h = task / blocks;
      BlockStorage storage;
      auto args = head(h / shape_.query_heads, h % shape_.query_heads);
      args.block = plan.block(blocks - 1 - task % blocks, storage);
      args.scratch = reinterpret_cast<Compute<T>*>(scratch + worker * slot_bytes(rows));
      table.softmax_block(args);
    });
  }

  /// Beyond every position.
  static constexpr Index kFar = std::numeric_limits<Index>::max() / 16;

  Op op_;
  DecoderShape shape_;
  KeyValueCache<T> cache_;
  Workspace scratch_;
};

FOVEA_NAMESPACE_END
