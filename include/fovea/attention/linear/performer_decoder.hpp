// SPDX-License-Identifier: MIT
/// \file
/// Incremental Performer attention: the state of the sums of each key head.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/call/decoder_check.hpp"
#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/linear/feature_stream.hpp"
#include "fovea/core/on_error.hpp"

FOVEA_NAMESPACE_BEGIN

/// What `op.decoder<T>(shape)` returns for a causal PerformerAttention: a growing sequence of
/// tokens, and the attention of its last positions. The projection comes with every step, and must
/// be the same for all of them.
/// `step` gives, bit for bit, what `op.forward` gives for the same queries and all keys so far,
/// whatever pieces the tokens were appended in, and for any number of threads.
/// Memory is constant: for each key head twice about 4 R Dv numbers and a chunk of tokens.
/// It must not be called from several threads at once. Errors are std::invalid_argument or
/// std::bad_alloc, and leave the decoder and the outputs as they were. If the executor of a step
/// throws something else in the middle, all tokens are forgotten.
template <class Op, class T>
class PerformerDecoder
    : public AppendCalls<PerformerDecoder<Op, T>, PerformerTokens<T>>,
      public StepCalls<PerformerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>> {
 public:
  /// An empty decoder.
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder;
  /// std::bad_alloc
  PerformerDecoder(const Op& op, const PerformerDecoderShape& shape)
      : op_(op),
        shape_(checked(op, shape)),
        memory_(heads(), head_elements() * Index{sizeof(T)}),
        marks_(static_cast<std::size_t>(heads())) {
    std::fill_n(memory_.template data<T>(), heads() * head_elements(), T(0));
  }

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return length_; }

  /// Bytes of memory for the states and the scratch.
  [[nodiscard]] Index memory_bytes() const { return memory_.size_bytes() + scratch_.size_bytes(); }

  /// Forgets the tokens from position `length` on: either all tokens, or some of the open chunk. To
  /// go back further, keep a `fork`.
  /// \throws std::invalid_argument if `length` lies before the open chunk and is not 0, or beyond
  /// the tokens
  void rollback(Index length) {
    const Index least = length_ == 0 ? 0 : (length_ - 1) / kLinearChunk * kLinearChunk + 1;
    if (length < 0 || length > length_ || (length != 0 && length < least)) {
      refuse(Op::name(), "rollback", std::to_string(length),
             range_text(least, length_) +
                 ", or 0: earlier tokens are summed up already (keep a fork)");
    }
    for (Index head = 0; head < heads() && length > 0; ++head) undo_raises(head, length);
    length_ = length;
  }

  /// Forgets all tokens and keeps the memory.
  void clear() noexcept { length_ = 0; }

  /// Checks that `tokens` is not negative, and does nothing else: the memory is constant.
  void reserve(Index tokens) { detail::check_at_least_0(Op::name(), "reserve", tokens); }

  /// A copy of the decoder that is independent of it.
  /// \throws std::bad_alloc
  [[nodiscard]] PerformerDecoder fork() const {
    PerformerDecoder other(op_, shape_);
    const T* const from = memory_.template data<T>();
    std::copy(from, from + heads() * head_elements(), other.memory_.template data<T>());
    other.marks_ = marks_;
    other.length_ = length_;
    return other;
  }

 private:
  friend class AppendCalls<PerformerDecoder<Op, T>, PerformerTokens<T>>;
  friend class StepCalls<PerformerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>>;

  /// Appends n tokens (AppendCalls). Cost: O(R (D + Dv)) flops for each token and key head.
  void append_tokens(const PerformerTokens<T>& tokens) {
    PerformerInputs<T> inputs;
    inputs.q = {nullptr, {shape_.batch, shape_.query_heads, 0, shape_.width}};
    inputs.k = tokens.k;
    inputs.v = tokens.v;
    inputs.projection = tokens.projection;
    check_tokens(inputs);
    check_projection(Op::name(), inputs.projection, shape_.width, shape_.features,
                     heads() * inputs.k.rows() > 0);
    add(inputs, View<T>(nullptr, {shape_.batch, shape_.query_heads, 0, shape_.value_width}),
        Serial{});
  }

  using Inputs = InputsOf<Op, T>;
  using Saved = SavedOf<Op, T>;
  using Stream = FeatureStream<T>;

  static PerformerDecoderShape checked(const Op& op, const PerformerDecoderShape& shape) {
    check_decoder_shape(Op::name(), shape, op.options.alignment);
    if (shape.features < 1) {
      refuse(Op::name(), "features", std::to_string(shape.features), "at least 1");
    }
    if (!op.options.causal) refuse(Op::name(), "causal", "false", "true: a decoder is causal");
    if (shape.rollback_tokens > 0) {
      refuse(Op::name(), "rollback_tokens", std::to_string(shape.rollback_tokens),
             "0: tokens are summed up at once (keep a fork)");
    }
    return shape;
  }

  Index heads() const { return shape_.batch * shape_.key_heads; }
  Index group() const { return detail::group_size(shape_.query_heads, shape_.key_heads); }
  Index row() const { return padded_row<T>(shape_.features); }
  /// Elements of the state of a key head.
  Index state_elements() const {
    return Stream::state_elements(shape_.features, shape_.value_width);
  }
  /// Elements of a key head: its state, the state before a raise of the open chunk, and the logits
  /// of that chunk's tokens.
  Index head_elements() const { return 2 * state_elements() + kLinearChunk * row(); }
  T* state(Index head) { return memory_.template data<T>() + head * head_elements(); }
  T* state_before(Index head) { return state(head) + state_elements(); }
  T* logits(Index head) { return state_before(head) + state_elements(); }

  /// The tokens of the open chunk that raised a reference, behind its first one.
  struct Marks {
    Index first = -1;
    Index last = -1;  // or a token behind the last
  };

  /// Keeps what is needed to take back tokens of the open chunk.
  class Watch {
   public:
    Watch(PerformerDecoder& decoder, Index head) : decoder_(decoder), head_(head) {}

    void take(Index position, const T* logits, Index count) const {
      const Index row = decoder_.row();
      for (Index n = (std::max)(Index{0}, count - kLinearChunk); n < count; ++n) {
        const T* const from = logits + n * row;
        std::copy(from, from + row, decoder_.logits(head_) + (position + n) % kLinearChunk * row);
      }
    }
    void raise(Index position) const {
      Marks& marks = decoder_.marks_[static_cast<std::size_t>(head_)];
      if (position % kLinearChunk == 0) {
        marks = {};
        return;
      }
      if (marks.first < 0 || marks.first / kLinearChunk != position / kLinearChunk) {
        const T* const from = decoder_.state(head_);
        std::copy(from, from + decoder_.state_elements(), decoder_.state_before(head_));
        marks.first = position;
      }
      marks.last = position;
    }

   private:
    PerformerDecoder& decoder_;
    Index head_;
  };

  /// Makes the state of a key head that of `length` tokens, if later ones raised a reference: that
  /// before the first raise, to which tokens are added again.
  void undo_raises(Index head, Index length) {
    Marks& marks = marks_[static_cast<std::size_t>(head)];
    const bool is_open = marks.first / kLinearChunk == (length_ - 1) / kLinearChunk;
    if (marks.first < 0 || !is_open || marks.last < length) return;
    // The values of the chunk's tokens stand in front, and are all still needed.
    const Index values = kLinearChunk * padded_row<T>(shape_.value_width);
    const T* const before = state_before(head);
    std::copy(before + values, before + state_elements(), state(head) + values);
    if (length <= marks.first) {
      marks = {};
      return;
    }
    const PerformerInputs<T> nothing;
    const RandomFeatures<T> unused;
    const Stream stream(nothing, call_shape(), unused, View<T>{});
    const Index at = marks.first % kLinearChunk;
    const Matrix<const T> v = {state(head) + at * padded_row<T>(shape_.value_width),
                               padded_row<T>(shape_.value_width), 1};
    stream.replay(logits(head) + at * row(), v, length - marks.first, marks.first,
                  {state(head), scratch_.template data<T>(), rows_.data()});
    marks.last = length - 1;
  }

  PerformerShape call_shape() const {
    return {shape_.batch, shape_.query_heads, shape_.key_heads, 0, 0,
            shape_.width, shape_.value_width, shape_.features};
  }

  void check_tokens(const PerformerInputs<T>& inputs) const {
    check_decoder_tokens(Op::name(), shape_, inputs.k, inputs.v, kMostDecoderTokens - length_);
  }

  void check_step(const Inputs& inputs, const View<T>& out, const Saved& saved) const {
    if (detail::has_new_tokens(inputs)) check_tokens(inputs);
    const Index tokens = detail::new_tokens(inputs);
    check_decoder_rows(Op::name(), shape_, inputs, length_ + tokens);
    const Index most = tokens + (length_ > 0 ? 1 : 0);
    if (inputs.q.rows() > most) {
      refuse_extent(Op::name(), "q", inputs.q.shape(), 2,
                    "at most " + std::to_string(most) + ": earlier tokens are summed up already");
    }
    check_projection(
        Op::name(), inputs.projection, shape_.width, shape_.features,
        shape_.batch * (shape_.query_heads * inputs.q.rows() + shape_.key_heads * tokens) > 0);
    // Of tokens that came before only the sizes matter now, so one element stands for all of them.
    static const T element{};
    Inputs all = inputs;
    if (!detail::has_new_tokens(inputs)) {
      all.k = {&element, {shape_.batch, shape_.key_heads, 1, shape_.width}, {}};
      all.v = {&element, {shape_.batch, shape_.key_heads, 1, shape_.value_width}, {}};
    }
    op_.check(all, out, saved);
  }

  /// One step (StepCalls), with at most one row more than new tokens.
  void run_step(const Inputs& inputs, const View<T>& out, const Saved& saved,
                const ExecutorRef& executor) {
    check_step(inputs, out, saved);
    const Index rows = group() * inputs.q.rows() + detail::new_tokens(inputs);
    auto&& threads = for_work(executor, [&] {
      return static_cast<double>(heads() * rows) *
             static_cast<double>(shape_.features * (shape_.width + shape_.value_width));
    });
    add(inputs, out, threads);
  }

  /// Adds the tokens of the inputs, and lets the rows read. Everything is checked already. What may
  /// throw comes first.
  void add(const PerformerInputs<T>& inputs, const View<T>& out, const ExecutorRef& executor) {
    const Index tokens = detail::new_tokens(inputs);
    const Index workers = (std::max)(Index{1}, worker_count(executor, heads()));
    const Index slot =
        Stream::scratch_elements(shape_.features, shape_.width, shape_.value_width, group());
    const Index projection = RandomFeatures<T>::elements(shape_.features, shape_.width, false);
    const Index needed = (workers * slot + projection) * Index{sizeof(T)};
    if (needed > scratch_.size_bytes()) scratch_ = Workspace(needed);
    rows_.resize(static_cast<std::size_t>(workers * (std::max)(Index{1}, group())));
    T* const scratch = scratch_.template data<T>();
    RandomFeatures<T> features;
    if (!inputs.projection.is_none()) {
      features.pack(inputs.projection, false, scratch + workers * slot);
    }
    const Stream stream(inputs, call_shape(), features, out);
    typename Stream::Strip strip;
    strip.rows = shape_.query_heads == 0 ? 0 : inputs.q.rows();
    strip.tokens = tokens;
    strip.length = length_;
    strip.first_position = length_ + tokens - strip.rows;
    // The states of some heads may have the tokens when an executor throws, and others not.
    const detail::OnError forget([this] { clear(); });
    for_each_task(executor, heads(), [&](Index task, Index worker) {
      stream.add(task / shape_.key_heads, task % shape_.key_heads, strip,
                 {state(task), scratch + worker * slot, rows_.data() + worker * group()},
                 Watch(*this, task));
    });
    length_ += tokens;
  }

  Op op_;
  PerformerDecoderShape shape_;
  Workspace memory_;          // [B, Hk, head_elements]
  std::vector<Marks> marks_;  // [B, Hk]
  Index length_ = 0;
  Workspace scratch_;
  std::vector<LinearRows<T>> rows_;
};

FOVEA_NAMESPACE_END
