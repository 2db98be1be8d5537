// SPDX-License-Identifier: MIT
/// \file
/// Included by performer_decoder_core.hpp, where it is documented.
#pragma once

#include <algorithm>
#include <string>

#include "fovea/attention/call/decoder_check.hpp"
#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/linear/feature_stream.hpp"
#include "fovea/attention/linear/performer_decoder_core.hpp"
#include "fovea/core/on_error.hpp"

FOVEA_NAMESPACE_BEGIN

/// Keeps what is needed to roll back tokens of the open chunk.
template <class T>
class PerformerDecoderCore<T>::Observer {
 public:
  Observer(PerformerDecoderCore& decoder, Index head) : decoder_(decoder), head_(head) {}

  void take(Index position, const T* logits, Index count) const {
    const Index row = decoder_.row();
    for (Index n = (std::max)(Index{0}, count - kLinearChunk); n < count; ++n) {
      const T* const from = logits + n * row;
      std::copy(from, from + row, decoder_.logits(head_) + (position + n) % kLinearChunk * row);
    }
  }
  void raise(Index position) const {
    ReferenceRaises& marks = decoder_.marks_[static_cast<std::size_t>(head_)];
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
  PerformerDecoderCore& decoder_;
  Index head_;
};

template <class T>
PerformerDecoderCore<T>::PerformerDecoderCore(const PerformerSettings& op,
                                              const PerformerDecoderShape& shape)
    : op_(op),
      shape_(checked(op, shape)),
      memory_(heads(), head_elements() * Index{sizeof(T)}),
      marks_(static_cast<std::size_t>(heads())) {
  std::fill_n(memory_.template data<T>(), heads() * head_elements(), T(0));
}

template <class T>
Index PerformerDecoderCore<T>::memory_bytes() const {
  return memory_.size_bytes() + scratch_.size_bytes();
}

template <class T>
void PerformerDecoderCore<T>::rollback(Index length) {
  const Index least = length_ == 0 ? 0 : (length_ - 1) / kLinearChunk * kLinearChunk + 1;
  if (length < 0 || length > length_ || (length != 0 && length < least)) {
    refuse(op_.name, "rollback", std::to_string(length),
           range_text(least, length_) +
               ", or 0: the state already contains earlier tokens (keep a fork)");
  }
  for (Index head = 0; head < heads() && length > 0; ++head) undo_raises(head, length);
  length_ = length;
}

template <class T>
void PerformerDecoderCore<T>::reserve(Index tokens) const {
  detail::check_at_least_0(op_.name, "reserve", tokens);
}

template <class T>
PerformerDecoderCore<T> PerformerDecoderCore<T>::fork() const {
  PerformerDecoderCore other(op_, shape_);
  const T* const from = memory_.template data<T>();
  std::copy(from, from + heads() * head_elements(), other.memory_.template data<T>());
  other.marks_ = marks_;
  other.length_ = length_;
  return other;
}

template <class T>
void PerformerDecoderCore<T>::append(PerformerInputs<T> inputs) {
  inputs.q = {nullptr, {shape_.batch, shape_.query_heads, 0, shape_.width}};
  check_tokens(inputs);
  check_projection(op_.name, inputs.projection, shape_.width, shape_.features,
                   heads() * inputs.k.rows() > 0);
  add(inputs, View<T>(nullptr, {shape_.batch, shape_.query_heads, 0, shape_.value_width}),
      Serial{});
}

template <class T>
const PerformerDecoderShape& PerformerDecoderCore<T>::checked(const PerformerSettings& op,
                                                              const PerformerDecoderShape& shape) {
  check_decoder_shape(op.name, shape, op.far_field.alignment);
  if (shape.features < 1) {
    refuse(op.name, "features", std::to_string(shape.features), "at least 1");
  }
  if (!op.far_field.causal) refuse(op.name, "causal", "false", "true: a decoder is causal");
  if (shape.rollback_tokens > 0) {
    refuse(op.name, "rollback_tokens", std::to_string(shape.rollback_tokens),
           "0: tokens are added to the state at once (keep a fork)");
  }
  return shape;
}

template <class T>
Index PerformerDecoderCore<T>::group() const {
  return detail::group_size(shape_.query_heads, shape_.key_heads);
}

template <class T>
Index PerformerDecoderCore<T>::state_elements() const {
  return Stream::state_elements(shape_.features, shape_.value_width);
}

template <class T>
void PerformerDecoderCore<T>::undo_raises(Index head, Index length) {
  ReferenceRaises& marks = marks_[static_cast<std::size_t>(head)];
  const bool is_open = marks.first / kLinearChunk == (length_ - 1) / kLinearChunk;
  if (marks.first < 0 || !is_open || marks.last < length) return;
  // The values of the chunk's tokens come first, and are all still needed.
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

template <class T>
PerformerShape PerformerDecoderCore<T>::call_shape() const {
  return {shape_.batch, shape_.query_heads, shape_.key_heads, 0, 0,
          shape_.width, shape_.value_width, shape_.features};
}

template <class T>
void PerformerDecoderCore<T>::check_tokens(const PerformerInputs<T>& inputs) const {
  check_decoder_tokens(op_.name, shape_, inputs.k, inputs.v, kMostDecoderTokens - length_);
}

template <class T>
void PerformerDecoderCore<T>::check_step(const PerformerInputs<T>& inputs,
                                         const View<T>& out) const {
  if (detail::has_new_tokens(inputs)) check_tokens(inputs);
  const Index tokens = detail::new_tokens(inputs);
  check_decoder_rows(op_.name, shape_, inputs, length_ + tokens);
  const Index most = tokens + (length_ > 0 ? 1 : 0);
  if (inputs.q.rows() > most) {
    refuse_extent(
        op_.name, "q", inputs.q.shape(), 2,
        "at most " + std::to_string(most) + ": the state already contains earlier tokens");
  }
  check_projection(
      op_.name, inputs.projection, shape_.width, shape_.features,
      shape_.batch * (shape_.query_heads * inputs.q.rows() + shape_.key_heads * tokens) > 0);
  // Only the sizes of earlier tokens matter now, so one element represents all of them.
  static const T element{};
  PerformerInputs<T> all = inputs;
  if (!detail::has_new_tokens(inputs)) {
    all.k = {&element, {shape_.batch, shape_.key_heads, 1, shape_.width}, {}};
    all.v = {&element, {shape_.batch, shape_.key_heads, 1, shape_.value_width}, {}};
  }
  PerformerPasses<T>::check(op_, all, out, {});
}

template <class T>
void PerformerDecoderCore<T>::step(const PerformerInputs<T>& inputs, const View<T>& out,
                                   const LinearSaved<T>& /*saved*/, const ExecutorRef& executor) {
  check_step(inputs, out);
  const Index rows = group() * inputs.q.rows() + detail::new_tokens(inputs);
  const ExecutorRef threads = for_work(executor, [&] {
    return static_cast<double>(heads() * rows) *
           static_cast<double>(shape_.features * (shape_.width + shape_.value_width));
  });
  add(inputs, out, threads);
}

template <class T>
void PerformerDecoderCore<T>::add(const PerformerInputs<T>& inputs, const View<T>& out,
                                  const ExecutorRef& executor) {
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
  if (!inputs.projection.empty()) {
    features.pack(inputs.projection, false, scratch + workers * slot);
  }
  const Stream stream(inputs, call_shape(), features, out);
  typename Stream::RowBlock row_block;
  row_block.rows = shape_.query_heads == 0 ? 0 : inputs.q.rows();
  row_block.tokens = tokens;
  row_block.length = length_;
  row_block.first_position = length_ + tokens - row_block.rows;
  // When an executor throws, some heads' states may already contain the tokens.
  const detail::OnError forget([this] { clear(); });
  for_each_task(executor, heads(), [&](Index task, Index worker) {
    stream.add(task / shape_.key_heads, task % shape_.key_heads, row_block,
               {state(task), scratch + worker * slot, rows_.data() + worker * group()},
               Observer(*this, task));
  });
  length_ += tokens;
}

FOVEA_FLOAT_AND_DOUBLE_PASSES(PerformerDecoderCore)

FOVEA_NAMESPACE_END
