// SPDX-License-Identifier: MIT
/// \file
/// Incremental softmax attention: a cache of keys and values, and the attention of the last
/// positions over it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/softmax/decoder_cache.hpp"
#include "fovea/attention/softmax/few_queries.hpp"
#include "fovea/attention/softmax/forward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/attention/softmax/step_check.hpp"
#include "fovea/core/on_error.hpp"

FOVEA_NAMESPACE_BEGIN

template <class Op, class T>
class DecoderScores;

/// What `op.decoder<T>(shape)` returns for a softmax operator `Op`: a growing sequence of tokens,
/// and the attention of its last positions.
/// `step` gives, bit for bit, what `op.forward` gives for the same queries and all keys so far.
/// That holds whatever pieces the tokens were appended in, and for any number of threads. Only
/// visible keys are read. Parts of the pattern that name positions beyond the tokens so far wait
/// for them.
/// Memory: at most twice the tokens. Under a window of `left` keys it is that of about 2 (left +
/// right + min(left, 512)) tokens, however long the sequence is, and the summary columns if heads
/// see such (fixed attention). If a step brings more new tokens than a window holds, it takes a
/// copy for its duration.
/// It must not be called from several threads at once. Errors are std::invalid_argument or
/// std::bad_alloc, and leave the decoder and the outputs as they were.
template <class Op, class T>
class Decoder : public AppendCalls<Decoder<Op, T>, KeyValueTokens<T>>,
                public StepCalls<Decoder<Op, T>, T, SoftmaxInputs<T>, SoftmaxSaved<T>> {
 public:
  /// An empty decoder.
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder;
  /// std::bad_alloc for shape.reserve
  Decoder(const Op& op, const DecoderShape& shape)
      : op_(op),
        shape_(shape),
        cache_(shape, checked_scope()),
        head_groups_(shape.query_heads, shape.key_heads, scope().period()) {
    if (shape.reserve > 0) cache_.reserve(shape.reserve);
  }

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return cache_.length(); }

  /// Bytes of memory for keys, values and scratch.
  [[nodiscard]] Index memory_bytes() const {
    return cache_.memory_bytes() + scratch_.size_bytes() + decode_plan_.memory_bytes();
  }

  /// Forgets the tokens from position `length` on. Under a window at least the last
  /// `rollback_tokens` tokens can be forgotten, or all.
  /// \throws std::invalid_argument if `length` is not one of 0 to length(), or keys that the window
  /// needs are gone
  void rollback(Index length) {
    const Index before = this->length();
    if (length < 0 || length > before) {
      refuse(Op::name(), "rollback", std::to_string(length),
             range_text<Index>(0, before) + ", the tokens in the decoder");
    }
    const Index needed = (std::max)(Index{0}, length - 1 - left());
    if (length > 0 && length < before && needed < cache_.first_held()) {
      refuse(Op::name(), "rollback", std::to_string(length),
             "at least " + std::to_string(cache_.first_held() + left() + 1) +
                 ", or 0: earlier keys have left the window (see rollback_tokens)");
    }
    cache_.truncate(length);
  }

  /// Forgets all tokens and keeps the memory.
  void clear() noexcept { cache_.truncate(0); }

  /// Takes memory for that many tokens in all.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) {
    detail::check_at_least_0(Op::name(), "reserve", tokens);
    cache_.reserve(tokens);
  }

  /// The tokens that are held: all, or under a window the last ones.
  /// \pre no head sees summary columns
  [[nodiscard]] HeldTokens<T> held() const { return cache_.held(); }

  /// Replaces the tokens by these.
  /// \throws std::bad_alloc, with nothing changed
  void restart(const HeldTokens<T>& held) { cache_.restart(held); }

  /// A copy of the decoder that is independent of it, with memory for just its tokens.
  /// \throws std::bad_alloc
  [[nodiscard]] Decoder fork() const { return Decoder(*this, cache_.copy()); }

 private:
  friend class AppendCalls<Decoder<Op, T>, KeyValueTokens<T>>;
  friend class StepCalls<Decoder<Op, T>, T, SoftmaxInputs<T>, SoftmaxSaved<T>>;
  friend class DecoderScores<Op, T>;  // fovea/attention/scores.hpp

  /// Appends n tokens (AppendCalls). Cost: O(D + Dv) for each token and key head, on average.
  void append_tokens(const KeyValueTokens<T>& tokens) {
    check_tokens(tokens.k, tokens.v);
    cache_.make_room(length() + tokens.k.rows());
    cache_.append(tokens.k, tokens.v);
  }

  Decoder(const Decoder& other, DecoderCache<T> cache)
      : op_(other.op_),
        shape_(other.shape_),
        cache_(std::move(cache)),
        head_groups_(other.head_groups_) {}

  const RetainedKeys& scope() const { return cache_.scope(); }

  /// The number of keys before a query that it sees among the recent ones.
  Index left() const { return scope().reach().before; }

  RetainedKeys checked_scope() const {
    check_softmax_decoder<T>(op_, shape_);
    return RetainedKeys(op_, shape_);
  }

  void check_tokens(const View<const T>& k, const View<const T>& v) const {
    check_decoder_tokens(Op::name(), shape_, k, v, kMostTokens - length());
  }

  Index length_after(const SoftmaxInputs<T>& inputs) const {
    return length() + detail::new_tokens(inputs);
  }

  void check_step(const SoftmaxInputs<T>& inputs, const View<T>& out,
                  const SoftmaxSaved<T>& saved) const {
    check_softmax_step(op_, shape_, length(), inputs, out, saved);
    check_held(inputs.q.rows(), length_after(inputs));
  }

  /// Checks that the recent keys that the queries see are held.
  void check_held(Index rows, Index after) const {
    if (!cache_.is_ring() || cache_.first_held() == 0) return;
    const Index most = after - left() - cache_.first_held();
    if (rows > most) {
      refuse(Op::name(), "q has " + std::to_string(rows) + " rows",
             "expected at most " + std::to_string(most) + ": earlier keys have left the window");
    }
  }

  /// One step (StepCalls). For few rows K and V are read once by the heads that share a key head
  /// and a pattern, and by all threads.
  void run_step(const SoftmaxInputs<T>& inputs, const View<T>& out, const SoftmaxSaved<T>& saved,
                const ExecutorRef& executor) {
    check_step(inputs, out, saved);
    // A user's pattern or executor may throw once the new tokens are there. What a ring has
    // forgotten in favour of them stays forgotten.
    const detail::OnError forget([this, length = length()] { cache_.truncate(length); });
    const Index rows = shape_.batch * shape_.query_heads == 0 ? 0 : inputs.q.rows();
    if (rows == 0) {
      cache_.make_room(length_after(inputs));
      append_new(inputs);
    } else if (are_few(rows_after(inputs), worker_count(executor, kMostTokens))) {
      attend_few(inputs, out, saved, executor);
    } else {
      attend_many(inputs, out, saved, executor);
    }
  }

  /// Appends the tokens of a step.
  /// \pre there is room for them
  void append_new(const SoftmaxInputs<T>& inputs) noexcept {
    if (detail::has_new_tokens(inputs)) cache_.append(inputs.k, inputs.v);
  }

  /// The last rows of a sequence that ends with the new tokens.
  SequenceShape rows_after(const SoftmaxInputs<T>& inputs) const {
    const Index after = length_after(inputs);
    return {inputs.q.rows(), after, after - inputs.q.rows()};
  }

  /// The first recent key that rows see.
  Index first_key(const SequenceShape& rows) const {
    return scope().is_bounded() ? (std::max)(Index{0}, rows.first_position - left()) : 0;
  }

  /// Sets where the keys of a head stand, and the positions of its queries.
  struct Place {
    const DecoderCache<T>& cache;
    SequenceShape rows;
    Index first_key;  // first one of the recent keys that the arguments hold
    Index group;      // number of query heads of a key head

    void operator()(KeySource source, Index b, Index h, HeadArgs<T>& args) const {
      args.first_position = rows.first_position;
      args.key_end = rows.keys;
      args.key_rows.base = first_key;
      if constexpr (requires { Op::kSumsInTiles; }) args.in_tiles = Op::kSumsInTiles;
      if (source == KeySource::summary) cache.place_summary(b, h / group, args);
    }
    void operator()(Index stage, const SequenceTask& task, HeadArgs<T>& args) const {
      (*this)(cache.scope().sources(task.head)[stage], task.sequence, task.head, args);
    }
  };

  Place place(const SequenceShape& rows, Index first_key) const {
    return {cache_, rows, first_key, detail::group_size(shape_.query_heads, shape_.key_heads)};
  }

  /// The call for a step, with these keys and values.
  SoftmaxCall<T> call(SoftmaxInputs<T> inputs, const View<const T>& k,
                      const View<const T>& v) const {
    inputs.k = k;
    inputs.v = v;
    return {inputs, op_.softmax_options(), op_.template score_modifier<Compute<T>, false>()};
  }

  /// The pattern of head h.
  decltype(auto) pattern(Index h, const SequenceShape& rows) const {
    if constexpr (Op::kPatternKnowsShape) {
      return op_.pattern(h, rows);
    } else {
      return scope().pattern(h);
    }
  }

  bool are_few(const SequenceShape& rows, Index workers) const {
    return prefers_split_kv(rows, head_groups_, shape_.batch, scope().period(), workers,
                            [&](Index h) { return pattern(h, rows); });
  }

  /// Attends with few rows: segments of keys are shared out over threads. Everything is checked
  /// already. The memory is taken first, then the tokens, and after that nothing throws.
  void attend_few(const SoftmaxInputs<T>& inputs, const View<T>& out, const SoftmaxSaved<T>& saved,
                  const ExecutorRef& executor) {
    const SequenceShape rows = rows_after(inputs);
    decode_plan_.clear();
    for (Index h = 0; h < scope().period(); ++h) {
      decode_plan_.add(pattern(h, rows), rows, scope().sources(h));
    }
    decode_plan_.finish();
    SplitKv<T> split(
        {shape_.batch, shape_.width, shape_.value_width, scope().columns() > 0 ? 2 : 1},
        head_groups_, decode_plan_);
    cache_.make_room(rows.keys);
    auto&& threads = for_work(executor, [&] { return split.products(); });
    const Index bytes = split.scratch_bytes(worker_count(threads, split.task_count()));
    if (bytes > scratch_.size_bytes()) scratch_ = Workspace(bytes);
    append_new(inputs);
    const Index first = first_key(rows);
    const auto call = this->call(inputs, cache_.keys(first, rows.keys - first),
                                 cache_.values(first, rows.keys - first));
    const Place place = this->place(rows, first);
    const auto args = [&](KeySource source, Index b, Index h) {
      auto of_head = call.args(call.sequences()[b], h, out, saved);
      place(source, b, h, of_head);
      return of_head;
    };
    split.run(args, scratch_.template data<std::byte>(), threads);
  }

  /// Attends with many rows: the forward pass over the cache, or over a copy of the recent keys if
  /// the cache forgets some that it needs. Everything is checked already. Here too, what may throw
  /// comes first.
  void attend_many(const SoftmaxInputs<T>& inputs, const View<T>& out, const SoftmaxSaved<T>& saved,
                   const ExecutorRef& executor) {
    const SequenceShape rows = rows_after(inputs);
    cache_.make_room(rows.keys);
    const Index first = first_key(rows);
    const Index count = rows.keys - first;
    if (cache_.holds(count)) {
      forward(rows, first, call(inputs, cache_.keys(first, count), cache_.values(first, count)),
              out, saved, executor, [&] { append_new(inputs); });
    } else if (length() == 0) {
      forward(rows, 0, call(inputs, inputs.k, inputs.v), out, saved, executor,
              [&] { append_new(inputs); });
    } else {
      const Index held = (std::max)(Index{0}, length() - first);
      const Index skipped = (std::max)(Index{0}, first - length());  // new tokens that no row sees
      const Index added = count - held;
      detail::TokenRows<T> k(shape_.batch, shape_.key_heads, shape_.width, count, false);
      detail::TokenRows<T> v(shape_.batch, shape_.key_heads, shape_.value_width, count, false);
      forward(rows, first, call(inputs, k.view(0, count), v.view(0, count)), out, saved, executor,
              [&] {
                k.put(cache_.keys(first, held), 0, 0, held);
                v.put(cache_.values(first, held), 0, 0, held);
                k.put(inputs.k, skipped, held, added);
                v.put(inputs.v, skipped, held, added);
                append_new(inputs);
              });
    }
  }

  /// Runs a forward pass.
  /// \param append called after the memory is taken; it fills the keys of the call
  template <class Append>
  void forward(const SequenceShape& rows, Index first_key, const SoftmaxCall<T>& call,
               const View<T>& out, const SoftmaxSaved<T>& saved, const ExecutorRef& executor,
               const Append& append) {
    const HeadPlans plans(op_, shape_.query_heads, rows);
    auto&& threads =
        for_work(executor, [&] { return plans.products(call, shape_.width + shape_.value_width); });
    SoftmaxForward pass(call, plans, out, saved, place(rows, first_key));
    pass.reserve(threads);
    memory_of(threads).require();
    append();
    pass.compute(threads);
  }

  static constexpr Index kMostTokens = kMostDecoderTokens;

  Op op_;
  DecoderShape shape_;
  DecoderCache<T> cache_;
  HeadGroups head_groups_;
  DecodePlan decode_plan_;  // that of the last step, kept for its memory
  Workspace scratch_;       // that of the last step, kept for its memory
};

FOVEA_NAMESPACE_END
