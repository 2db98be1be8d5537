// SPDX-License-Identifier: MIT
/// \file
/// Included by decoder_core.hpp, which documents it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/softmax/step_check.hpp"
#include "fovea/core/on_error.hpp"
#include "fovea/distributed/messages/exchange_plan.hpp"
#include "fovea/distributed/softmax/decoder_core.hpp"
#include "fovea/distributed/softmax/sharded_split_kv.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A prepared step: it throws only what the executor throws.
template <class T>
struct ShardedDecoderCore<T>::Pass final : RankPass {
  Pass(ShardedDecoderCore& whole, const SoftmaxOperatorRef& of, const Modifier& modifies,
       const SoftmaxStep<T>& tensors)
      : decoder(whole), op(of), modifier(modifies), step(tensors) {}

  ShardedDecoderCore& decoder;
  const SoftmaxOperatorRef& op;
  const Modifier& modifier;
  SoftmaxStep<T> step;
  std::vector<ShardedSplitKv<T>> chunks = {};  // of rows_at_once() rows each
  std::uint64_t number = 0;                    // hash of visible keys

  std::uint64_t plan_number() const override { return number; }

  std::exception_ptr run(const ExecutorRef& executor) override {
    const SequenceShape rows = decoder.rows_after(step.inputs);
    decoder.put_new(step.inputs);
    std::exception_ptr error;
    Index first = 0;
    for (ShardedSplitKv<T>& chunk : chunks) {
      const SequenceShape of_chunk = decoder.chunk(rows, first);
      const std::exception_ptr thrown =
          decoder.run(chunk, op, modifier, step.rows(first, of_chunk.queries), of_chunk, executor);
      if (!error) error = thrown;
      first += of_chunk.queries;
    }
    return error;
  }
};

template <class T>
ShardedDecoderCore<T>::ShardedDecoderCore(const SoftmaxOperatorRef& op, const std::string& options,
                                          const DecoderShape& shape, const Communicator& ranks)
    : name_(op.name()),
      shape_(shape),
      ranks_(&ranks),
      fixed_(agreed_parts(op, options)),
      row_(detail::MpiType::row(ranks, fixed_.row_bytes)),
      unit_(detail::MpiType::row(ranks, ShardedSplitKv<T>::kUnit * Index{sizeof(Compute<T>)})),
      cache_({shape.batch, shape.key_heads, shape.width, shape.value_width}) {
  if (shape.reserve > 0) reserve(shape.reserve);
}

template <class T>
RowLayout ShardedDecoderCore<T>::layout(Index tokens) const {
  return RowLayout::block_cyclic(tokens, ranks_->size(), block());
}

template <class T>
Index ShardedDecoderCore<T>::memory_bytes() const {
  return cache_.memory_bytes() + scratch_.size_bytes() + plan_.memory_bytes() +
         shares_.memory_bytes();
}

template <class T>
void ShardedDecoderCore<T>::append(const KeyValueTokens<T>& tokens) {
  append(
      ".append", tokens.k.rows(), [&] { check_tokens(tokens, kMostDecoderTokens - length_); },
      [&] { put(tokens.k, tokens.v); });
}

template <class T>
void ShardedDecoderCore<T>::append_own(const KeyValueTokens<T>& tokens, Index count) {
  const auto check = [&] {
    fovea::detail::check_at_least_0(name_, "count", count);
    check_tokens(tokens, kMostDecoderTokens);
    if (count > kMostDecoderTokens - length_) {
      refuse(name_, "count", std::to_string(count),
             range_text<Index>(0, kMostDecoderTokens - length_));
    }
    const Index own = own_count(length_ + count) - own_count(length_);
    if (tokens.k.rows() == own) return;
    refuse_extent(name_, "k", tokens.k.shape(), 2,
                  std::to_string(own) + ", the number of tokens on this rank");
  };
  append(".append_own", count, check,
         [&] { cache_.append(tokens.k, tokens.v, 0, tokens.k.rows()); });
}

template <class T>
void ShardedDecoderCore<T>::rollback(Index length) {
  detail::together(*ranks_, call_text(".rollback to ", length), [&] {
    if (length >= 0 && length <= length_) return;
    refuse(name_, "rollback", std::to_string(length),
           range_text<Index>(0, length_) + ", the tokens in the decoder");
  });
  truncate(length);
}

template <class T>
void ShardedDecoderCore<T>::reserve(Index tokens) {
  detail::together(*ranks_, call_text(".reserve of ", tokens), [&] {
    fovea::detail::check_at_least_0(name_, "reserve", tokens);
    cache_.reserve(own_count((std::min)(tokens, kMostDecoderTokens)));
  });
}

template <class T>
CommStats ShardedDecoderCore<T>::step(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                      const SoftmaxStep<T>& step,
                                      const detail::CollectiveCall& call) {
  const SoftmaxInputs<T>& inputs = step.inputs;
  const fovea::detail::OnError forget([this, length = length_] { truncate(length); });
  const CommStats comm_stats = detail::run_call(
      *ranks_, call, call_text(".step of ", inputs.q.rows()).append(step.text()),
      [&] { check_softmax_step(op, shape_, length_, inputs, step.out, step.saved); },
      [&](const ExecutorRef& threads) { return prepare(op, modifier, step, threads); });
  if (inputs.q.rows() > rows_at_once()) {  // with large lists
    plan_ = DecodePlan();
    shares_ = DecodeShares();
  }
  return comm_stats;
}

template <class T>
typename ShardedDecoderCore<T>::Fixed ShardedDecoderCore<T>::agreed_parts(
    const SoftmaxOperatorRef& op, const std::string& options) const {
  std::optional<Fixed> made;
  detail::together(*ranks_, call_text(".decoder, reserve ", shape_.reserve) + options, [&] {
    check_softmax_decoder<T>(op, shape_);
    RetainedKeys scope(op, shape_);
    if (scope.is_bounded()) {
      refuse(name_, "every head has a bounded window",
             "keep the small cache on every rank, with op.decoder");
    }
    const Index width = Workspace::size_of(shape_.width, Index{sizeof(T)});
    const Index value_width = Workspace::size_of(shape_.value_width, Index{sizeof(T)});
    made.emplace(Fixed{scope,
                       {shape_.query_heads, shape_.key_heads, scope.period()},
                       {kKeySegment * common_step(scope), ranks_->size()},
                       Workspace::size_of(width, 1) + value_width});
  });
  return std::move(*made);
}

/// A common multiple of the steps of all runs, if at most kMostStep.
template <class T>
Index ShardedDecoderCore<T>::common_step(const RetainedKeys& scope) {
  Index steps = 1;
  for (Index h = 0; h < scope.period(); ++h) {
    const AnyPattern& pattern = scope.pattern(h);
    for (Index pattern_pass = 0; pattern_pass < pattern.pass_count(); ++pattern_pass) {
      const Index step = pattern.plan(pattern_pass, {}).row_step();
      if (step > kMostStep || std::lcm(steps, step) > kMostStep) continue;
      steps = std::lcm(steps, step);
    }
  }
  return steps;
}

template <class T>
Index ShardedDecoderCore<T>::rows_at_once() const {
  return kMostRows / (std::max)(Index{1}, fixed_.groups.most_heads());
}

template <class T>
void ShardedDecoderCore<T>::truncate(Index length) noexcept {
  length_ = length;
  cache_.truncate(own_count(length));
}

template <class T>
void ShardedDecoderCore<T>::check_tokens(const KeyValueTokens<T>& tokens, Index most) const {
  check_decoder_tokens<T>(name_, shape_, tokens.k, tokens.v, most);
}

template <class T>
void ShardedDecoderCore<T>::append(const char* call, Index count, FunctionRef<void()> check,
                                   FunctionRef<void()> put_own) {
  detail::together(*ranks_, call_text(std::string(call).append(" of "), count), check);
  detail::together(*ranks_, name_, [&] { make_room(length_ + count); });
  put_own();
  length_ += count;
}

template <class T>
void ShardedDecoderCore<T>::put(const View<const T>& k, const View<const T>& v) noexcept {
  fixed_.blocks.for_each_range(
      ranks_->rank(), length_, length_ + k.rows(), [&](const Range& range) {
        cache_.append(k, v, range.begin - length_, range.end - range.begin);
      });
}

template <class T>
void ShardedDecoderCore<T>::put_new(const SoftmaxInputs<T>& inputs) noexcept {
  if (!fovea::detail::has_new_tokens(inputs)) return;
  put(inputs.k, inputs.v);
  length_ += inputs.k.rows();
}

template <class T>
SequenceShape ShardedDecoderCore<T>::rows_after(const SoftmaxInputs<T>& inputs) const {
  const Index after = length_ + fovea::detail::new_tokens(inputs);
  return {inputs.q.rows(), after, after - inputs.q.rows()};
}

template <class T>
SequenceShape ShardedDecoderCore<T>::chunk(const SequenceShape& rows, Index first) const {
  return {(std::min)(rows_at_once(), rows.queries - first), rows.keys, rows.first_position + first};
}

template <class T>
AnyPattern ShardedDecoderCore<T>::pattern(const SoftmaxOperatorRef& op, Index h,
                                          const SequenceShape& rows) const {
  return op.knows_shape() ? op.pattern(h, rows) : fixed_.scope.pattern(h);
}

/// Allocates all memory for a step, and finds this rank's work.
template <class T>
std::unique_ptr<typename ShardedDecoderCore<T>::Pass> ShardedDecoderCore<T>::prepare(
    const SoftmaxOperatorRef& op, const Modifier& modifier, const SoftmaxStep<T>& step,
    const ExecutorRef& executor) {
  auto pass = std::make_unique<Pass>(*this, op, modifier, step);
  const SequenceShape rows = rows_after(step.inputs);
  const Index queries = shape_.batch * shape_.query_heads == 0 ? 0 : rows.queries;
  const Index period = fixed_.scope.period();
  plan_.clear();
  Index classes = 0;
  for (Index first = 0; first < queries; first += rows_at_once()) {
    for (Index h = 0; h < period; ++h, ++classes) {
      plan_.add(pattern(op, h, rows), chunk(rows, first), fixed_.scope.sources(h));
    }
  }
  plan_.finish();
  for (Index c = 0; c < classes; ++c) {
    const Range items = plan_.head_class(c).items;
    for (Index n = items.begin; n < items.end; ++n) {
      pass->number = number_after(pass->number, plan_.item(n).block);
    }
  }
  shares_.make(plan_, classes, fixed_.blocks, ranks_->rank());
  const typename ShardedSplitKv<T>::Decoder decoder{
      *ranks_, fixed_.blocks, fixed_.groups, {shape_.batch, shape_.width, shape_.value_width, 1},
      row_,    unit_};
  pass->chunks.reserve(static_cast<std::size_t>(classes / period));
  Index bytes = 0;
  for (Index c = 0; c < classes; c += period) {
    ShardedSplitKv<T>& added = pass->chunks.emplace_back(decoder, plan_, shares_, c);
    auto&& threads = for_work(executor, [&] { return added.products(); });
    bytes = (std::max)(bytes, added.scratch_bytes(worker_count(threads, added.task_count())));
  }
  make_room(rows.keys);
  if (bytes > scratch_.size_bytes()) scratch_ = Workspace(bytes);
  return pass;
}

template <class T>
std::exception_ptr ShardedDecoderCore<T>::run(ShardedSplitKv<T>& chunk,
                                              const SoftmaxOperatorRef& op,
                                              const Modifier& modifier, SoftmaxStep<T> step,
                                              const SequenceShape& rows,
                                              const ExecutorRef& executor) {
  step.inputs.k = cache_.keys(0, own_count(length_));
  step.inputs.v = cache_.values(0, own_count(length_));
  const SoftmaxCall<T> call(step.inputs, op.options(), modifier);
  const auto args = [&](KeySource /*source*/, Index b, Index h) {
    HeadArgs<T> of_head = call.args(call.sequences()[b], h, step.out, step.saved);
    of_head.first_position = rows.first_position;
    of_head.key_end = rows.keys;
    return of_head;
  };
  auto&& threads = for_work(executor, [&] { return chunk.products(); });
  return chunk.run(step.inputs.k, step.inputs.v, args, scratch_.template data<std::byte>(),
                   threads);
}

template <class T>
std::string ShardedDecoderCore<T>::call_text(const std::string& call, Index number) const {
  std::string text(name_);
  text.append(call).append(std::to_string(number));
  text.append(" after ").append(std::to_string(length_)).append(" tokens, ");
  text.append(std::to_string(sizeof(T))).append(" bytes per number, ");
  return text.append(detail::sizes_text(shape_));
}

FOVEA_PASSES(ShardedDecoderCore)

}  // namespace distributed

FOVEA_NAMESPACE_END
