// SPDX-License-Identifier: MIT
/// \file
/// Included by decoder_core.hpp, where it is documented.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "fovea/attention/softmax/decoder_core.hpp"
#include "fovea/attention/softmax/decoder_step.hpp"
#include "fovea/attention/softmax/forward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/attention/softmax/split_kv_forward.hpp"
#include "fovea/attention/softmax/step_check.hpp"
#include "fovea/core/on_error.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
SoftmaxDecoderCore<T>::SoftmaxDecoderCore(const SoftmaxOperatorRef& op, const DecoderShape& shape)
    : shape_(shape),
      cache_(shape, checked_scope(op, shape)),
      head_groups_(shape.query_heads, shape.key_heads, scope().period()) {
  if (shape.reserve > 0) cache_.reserve(shape.reserve);
}

template <class T>
SoftmaxDecoderCore<T>::SoftmaxDecoderCore(const SoftmaxDecoderCore& other, DecoderCache<T> cache)
    : shape_(other.shape_), cache_(std::move(cache)), head_groups_(other.head_groups_) {}

template <class T>
RetainedKeys SoftmaxDecoderCore<T>::checked_scope(const SoftmaxOperatorRef& op,
                                                  const DecoderShape& shape) {
  check_softmax_decoder<T>(op, shape);
  return RetainedKeys(op, shape);
}

template <class T>
Index SoftmaxDecoderCore<T>::memory_bytes() const {
  return cache_.memory_bytes() + scratch_.size_bytes() + decode_plan_.memory_bytes();
}

template <class T>
void SoftmaxDecoderCore<T>::rollback(const char* op, Index length) {
  const Index before = this->length();
  if (length < 0 || length > before) {
    refuse(op, "rollback", std::to_string(length),
           range_text<Index>(0, before) + ", the tokens in the decoder");
  }
  const Index needed = (std::max)(Index{0}, length - 1 - left());
  if (length > 0 && length < before && needed < cache_.first_held()) {
    refuse(op, "rollback", std::to_string(length),
           "at least " + std::to_string(cache_.first_held() + left() + 1) +
               ", or 0: earlier keys have left the window (see rollback_tokens)");
  }
  cache_.truncate(length);
}

template <class T>
void SoftmaxDecoderCore<T>::clear() noexcept {
  cache_.truncate(0);
}

template <class T>
void SoftmaxDecoderCore<T>::reserve(const char* op, Index tokens) {
  detail::check_at_least_0(op, "reserve", tokens);
  cache_.reserve(tokens);
}

template <class T>
void SoftmaxDecoderCore<T>::append(const char* op, const KeyValueTokens<T>& tokens) {
  check_decoder_tokens<T>(op, shape_, tokens.k, tokens.v, kMostDecoderTokens - length());
  cache_.make_room(length() + tokens.k.rows());
  cache_.append(tokens.k, tokens.v);
}

template <class T>
CachedTokens<T> SoftmaxDecoderCore<T>::held() const {
  return cache_.held();
}
template <class T>
void SoftmaxDecoderCore<T>::restart(const CachedTokens<T>& held) {
  cache_.restart(held);
}
template <class T>
SoftmaxDecoderCore<T> SoftmaxDecoderCore<T>::fork() const {
  return SoftmaxDecoderCore(*this, cache_.copy());
}

template <class T>
Index SoftmaxDecoderCore<T>::length_after(const SoftmaxInputs<T>& inputs) const {
  return length() + detail::new_tokens(inputs);
}

template <class T>
void SoftmaxDecoderCore<T>::check_step(const Step& step) const {
  check_softmax_step(step.op, shape_, length(), step.inputs, step.out, step.saved);
  check_held(step.op.name(), step.inputs.q.rows(), length_after(step.inputs));
}

/// Checks that the recent keys that the queries see are stored.
template <class T>
void SoftmaxDecoderCore<T>::check_held(const char* op, Index rows, Index after) const {
  if (!cache_.is_ring() || cache_.first_held() == 0) return;
  const Index most = after - left() - cache_.first_held();
  if (rows > most) {
    refuse(op, "q has " + std::to_string(rows) + " rows",
           "expected at most " + std::to_string(most) + ": earlier keys have left the window");
  }
}

template <class T>
void SoftmaxDecoderCore<T>::step(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                 const SoftmaxInputs<T>& inputs, const View<T>& out,
                                 const SoftmaxSaved<T>& saved, const ExecutorRef& executor) {
  const Step step{op, modifier, inputs, out, saved};
  check_step(step);
  // A user's pattern or executor may throw after the new tokens were appended. Tokens that a ring
  // dropped for them stay dropped.
  const detail::OnError forget([this, length = length()] { cache_.truncate(length); });
  const Index rows = shape_.batch * shape_.query_heads == 0 ? 0 : inputs.q.rows();
  if (rows == 0) {
    cache_.make_room(length_after(inputs));
    append_new(inputs);
  } else if (applies(op, rows_after(inputs), worker_count(executor, kMostDecoderTokens))) {
    attend_few(step, executor);
  } else {
    attend_many(step, executor);
  }
}

/// Appends the tokens of a step. \pre there is room for them
template <class T>
void SoftmaxDecoderCore<T>::append_new(const SoftmaxInputs<T>& inputs) noexcept {
  if (detail::has_new_tokens(inputs)) cache_.append(inputs.k, inputs.v);
}

template <class T>
SequenceShape SoftmaxDecoderCore<T>::rows_after(const SoftmaxInputs<T>& inputs) const {
  const Index after = length_after(inputs);
  return {inputs.q.rows(), after, after - inputs.q.rows()};
}

template <class T>
Index SoftmaxDecoderCore<T>::first_key(const SequenceShape& rows) const {
  return scope().is_bounded() ? (std::max)(Index{0}, rows.first_position - left()) : 0;
}

template <class T>
typename SoftmaxDecoderCore<T>::Place SoftmaxDecoderCore<T>::place(const Step& step,
                                                                   const SequenceShape& rows,
                                                                   Index first_key) const {
  return {cache_, rows, first_key, detail::group_size(shape_.query_heads, shape_.key_heads),
          step.op.sums_in_tiles()};
}

template <class T>
AnyPattern SoftmaxDecoderCore<T>::pattern(const SoftmaxOperatorRef& op, Index h,
                                          const SequenceShape& rows) const {
  return op.knows_shape() ? op.pattern(h, rows) : scope().pattern(h);
}

template <class T>
bool SoftmaxDecoderCore<T>::applies(const SoftmaxOperatorRef& op, const SequenceShape& rows,
                                    Index workers) const {
  return prefers_split_kv(rows, head_groups_, shape_.batch, scope().period(), workers,
                          [&](Index h) { return pattern(op, h, rows); });
}

/// Attends with few rows: threads share the segments of keys. Everything is checked already. Memory
/// is allocated first, then the tokens are appended, and after that nothing throws.
template <class T>
void SoftmaxDecoderCore<T>::attend_few(const Step& step, const ExecutorRef& executor) {
  const SequenceShape rows = rows_after(step.inputs);
  decode_plan_.clear();
  for (Index h = 0; h < scope().period(); ++h) {
    decode_plan_.add(pattern(step.op, h, rows), rows, scope().sources(h));
  }
  decode_plan_.finish();
  SplitKv<T> split({shape_.batch, shape_.width, shape_.value_width, scope().columns() > 0 ? 2 : 1},
                   head_groups_, decode_plan_);
  cache_.make_room(rows.keys);
  const ExecutorRef threads = for_work(executor, [&] { return split.products(); });
  const Index bytes = split.scratch_bytes(worker_count(threads, split.task_count()));
  if (bytes > scratch_.size_bytes()) scratch_ = Workspace(bytes);
  append_new(step.inputs);
  const Index first = first_key(rows);
  const auto call =
      step.call(cache_.keys(first, rows.keys - first), cache_.values(first, rows.keys - first));
  const Place place = this->place(step, rows, first);
  const auto args = [&](KeySource source, Index b, Index h) {
    auto of_head = call.args(call.sequences()[b], h, step.out, step.saved);
    place(source, b, h, of_head);
    return of_head;
  };
  split.run(args, scratch_.template data<std::byte>(), threads);
}

/// Attends with many rows: the forward pass over the cache, or over a copy of the recent keys if
/// the cache drops some that it needs. Everything is checked already. Here too, what may throw
/// comes first.
template <class T>
void SoftmaxDecoderCore<T>::attend_many(const Step& step, const ExecutorRef& executor) {
  const SoftmaxInputs<T>& inputs = step.inputs;
  const SequenceShape rows = rows_after(inputs);
  cache_.make_room(rows.keys);
  const Index first = first_key(rows);
  const Index count = rows.keys - first;
  if (cache_.holds(count)) {
    forward(step, rows, first, cache_.keys(first, count), cache_.values(first, count), executor,
            [&] { append_new(inputs); });
  } else if (length() == 0) {
    forward(step, rows, 0, inputs.k, inputs.v, executor, [&] { append_new(inputs); });
  } else {
    const Index held = (std::max)(Index{0}, length() - first);
    const Index skipped = (std::max)(Index{0}, first - length());  // new tokens that no row sees
    const Index added = count - held;
    detail::TokenRows<T> k(shape_.batch, shape_.key_heads, shape_.width, count, false);
    detail::TokenRows<T> v(shape_.batch, shape_.key_heads, shape_.value_width, count, false);
    forward(step, rows, first, k.view(0, count), v.view(0, count), executor, [&] {
      k.put(cache_.keys(first, held), 0, 0, held);
      v.put(cache_.values(first, held), 0, 0, held);
      k.put(inputs.k, skipped, held, added);
      v.put(inputs.v, skipped, held, added);
      append_new(inputs);
    });
  }
}

template <class T>
void SoftmaxDecoderCore<T>::forward(const Step& step, const SequenceShape& rows, Index first_key,
                                    const View<const T>& k, const View<const T>& v,
                                    const ExecutorRef& executor, FunctionRef<void()> append) {
  const SoftmaxCall<T> call = step.call(k, v);
  const HeadPlans plans(step.op, shape_.query_heads, rows);
  const ExecutorRef threads =
      for_work(executor, [&] { return plans.products(call, shape_.width + shape_.value_width); });
  SoftmaxForward pass(call, plans, step.out, step.saved, place(step, rows, first_key));
  pass.reserve(threads);
  memory_of(threads).require();
  append();
  pass.compute(threads);
}

FOVEA_PASSES(SoftmaxDecoderCore)

FOVEA_NAMESPACE_END
