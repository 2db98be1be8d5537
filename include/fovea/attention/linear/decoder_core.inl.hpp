// SPDX-License-Identifier: MIT
/// \file
/// Included by decoder_core.hpp, where it is documented.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/linear/check.hpp"
#include "fovea/attention/linear/decoder_core.hpp"
#include "fovea/attention/linear/decoder_state.hpp"
#include "fovea/attention/linear/stream.hpp"
#include "fovea/core/on_error.hpp"

FOVEA_NAMESPACE_BEGIN

template <class Passes>
LinearDecoderCore<Passes>::LinearDecoderCore(const Settings& op, const DecoderShape& shape)
    : op_(op), shape_(checked(op, shape)), state_(memory_of_states()) {
  if constexpr (Settings::kHasNear) {
    near_.emplace(op_.near_field(), near_shape());
  } else {
    weights_ = FarWeights<C>::alone(shape_.query_heads, shape_.value_width, op_.far_field.share());
  }
}

template <class Passes>
Index LinearDecoderCore<Passes>::memory_bytes() const {
  Index bytes = state_.size_bytes() + scratch_.size_bytes();
  if constexpr (Settings::kHasNear) bytes += near_->memory_bytes();
  return bytes;
}

template <class Passes>
void LinearDecoderCore<Passes>::rollback(Index length) {
  const Index least = length_ == 0 ? 0 : (length_ - 1) / chunk() * chunk() + 1;
  if (length < 0 || length > length_ || (length != 0 && length < least)) {
    refuse(op_.name, "rollback", std::to_string(length),
           range_text(least, length_) +
               ", or 0: the state already contains earlier tokens (keep a fork or a save)");
  }
  if constexpr (Settings::kHasNear) near_->rollback(length);
  length_ = length;
}

template <class Passes>
void LinearDecoderCore<Passes>::clear() noexcept {
  if constexpr (Settings::kHasNear) near_->clear();
  length_ = 0;
}

template <class Passes>
void LinearDecoderCore<Passes>::reserve(Index tokens) const {
  detail::check_at_least_0(op_.name, "reserve", tokens);
}

template <class Passes>
void LinearDecoderCore<Passes>::append(LinearFamilyInputs<T> inputs) {
  check_tokens(inputs);
  inputs.q = {nullptr, {shape_.batch, shape_.query_heads, 0, shape_.width}};
  add(inputs, View<T>(nullptr, {shape_.batch, shape_.query_heads, 0, shape_.value_width}), {},
      Serial{});
}

template <class Passes>
LinearDecoderCore<Passes> LinearDecoderCore<Passes>::fork() const {
  LinearDecoderCore other(op_, shape_);
  if (state_.size_bytes() > 0) {
    std::memcpy(other.state_.template data<std::byte>(), state_.template data<std::byte>(),
                static_cast<std::size_t>(state_.size_bytes()));
  }
  if constexpr (Settings::kHasNear) other.near_ = near_->fork();
  other.length_ = length_;
  return other;
}

template <class Passes>
std::vector<std::byte> LinearDecoderCore<Passes>::save() const {
  LinearStateWriter writer(header());
  writer.put(state_.template data<std::byte>(), state_.size_bytes());
  if constexpr (Settings::kHasNear) writer.put(near_->held());
  return writer.take();
}

template <class Passes>
void LinearDecoderCore<Passes>::restore(std::span<const std::byte> bytes) {
  LinearStateReader reader(op_.name, bytes, header());
  Workspace state(state_.size_bytes());
  reader.get(state.template data<std::byte>(), state.size_bytes());
  const Index length = reader.length();
  if constexpr (Settings::kHasNear) {
    const auto tokens = reader.template tokens<C>(shape_);
    reader.finish();
    near_->restart(tokens.view());
  } else {
    reader.finish();
  }
  state_ = std::move(state);
  length_ = length;
}

template <class Passes>
const DecoderShape& LinearDecoderCore<Passes>::checked(const Settings& op,
                                                       const DecoderShape& shape) {
  Passes::check_options(op);
  check_decoder_shape(op.name, shape, op.far_field.alignment);
  if (!op.far_field.causal) refuse(op.name, "causal", "false", "true: a decoder is causal");
  if (shape.rollback_tokens > 0) {
    refuse(op.name, "rollback_tokens", std::to_string(shape.rollback_tokens),
           "0: tokens are added to the state at once (keep a fork or a save)");
  }
  return shape;
}

template <class Passes>
DecoderShape LinearDecoderCore<Passes>::near_shape() const {
  DecoderShape near_field = shape_;
  near_field.rollback_tokens = chunk();
  return near_field;
}

template <class Passes>
Index LinearDecoderCore<Passes>::chunk() const {
  return op_.far_field.delta_count() == 0 ? kLinearChunk
         : op_.far_field.map_count() == 0 ? kDeltaChunk
                                          : (std::min)(kLinearChunk, kDeltaChunk);
}

template <class Passes>
LinearShape LinearDecoderCore<Passes>::linear_shape() const {
  return {op_.far_field.map_count(), op_.far_field.features(shape_.width), shape_.value_width};
}

template <class Passes>
Index LinearDecoderCore<Passes>::group() const {
  return detail::group_size(shape_.query_heads, shape_.key_heads);
}

template <class Passes>
Index LinearDecoderCore<Passes>::state_elements() const {
  return sums_elements() + Stream::delta_elements(linear_shape());
}
template <class Passes>
Index LinearDecoderCore<Passes>::sums_elements() const {
  return Stream::state_elements(linear_shape());
}

template <class Passes>
Workspace LinearDecoderCore<Passes>::memory_of_states() const {
  Workspace memory(shape_.batch * shape_.key_heads, state_elements() * Index{sizeof(C)});
  if (memory.size_bytes() > 0) {
    std::memset(memory.template data<std::byte>(), 0,
                static_cast<std::size_t>(memory.size_bytes()));
  }
  return memory;
}

template <class Passes>
LinearStateHeader LinearDecoderCore<Passes>::header() const {
  LinearStateHeader header;
  header.scalar_bytes = sizeof(C);
  header.shape = shape_;
  header.maps = op_.far_field.map_count();
  header.deltas = op_.far_field.delta_count();
  header.combine = static_cast<Index>(op_.far_field.combine);
  header.state_bytes = state_.size_bytes();
  header.length = length_;
  if constexpr (Settings::kHasNear) header.left = (std::min)(op_.band.left, kFarPosition) + 1;
  return header;
}

template <class Passes>
void LinearDecoderCore<Passes>::check_tokens(const LinearFamilyInputs<T>& inputs) const {
  check_decoder_tokens<T>(op_.name, shape_, inputs.k, inputs.v, kMostDecoderTokens - length_);
  if constexpr (Far::kHasDelta) check_beta(op_.name, inputs);
}

template <class Passes>
void LinearDecoderCore<Passes>::check_step(const LinearFamilyInputs<T>& inputs, const View<T>& out,
                                           const Saved& saved) const {
  const bool has_tokens = detail::has_new_tokens(inputs);
  if (has_tokens) check_tokens(inputs);
  const Index tokens = detail::new_tokens(inputs);
  check_decoder_rows(op_.name, shape_, inputs, length_ + tokens);
  const Index most = tokens + (length_ > 0 ? 1 : 0);
  if (inputs.q.rows() > most) {
    refuse_extent(
        op_.name, "q", inputs.q.shape(), 2,
        "at most " + std::to_string(most) + ": the state already contains earlier tokens");
  }
  // Only the sizes of earlier tokens matter now, so one element represents all of them.
  static const T element{};
  static const C rate{};
  LinearFamilyInputs<T> all = inputs;
  if (!has_tokens) {
    all.k = {&element, {shape_.batch, shape_.key_heads, 1, shape_.width}, {}};
    all.v = {&element, {shape_.batch, shape_.key_heads, 1, shape_.value_width}, {}};
    if (Far::kHasDelta) all.beta = {&rate, {shape_.batch, shape_.key_heads, 1, 1}, {}};
  }
  Passes::check(op_, all, out, saved);
}

template <class Passes>
void LinearDecoderCore<Passes>::step(const LinearFamilyInputs<T>& inputs, const View<T>& out,
                                     const Saved& saved, const ExecutorRef& executor) {
  check_step(inputs, out, saved);
  const Index rows = group() * inputs.q.rows() + detail::new_tokens(inputs);
  const ExecutorRef threads = for_work(executor, [&] {
    return static_cast<double>(shape_.batch * shape_.key_heads * (rows + kRowsToRead)) *
           op_.far_field.products_of_row(shape_);
  });
  add(inputs, out, saved, threads);
}

template <class Passes>
void LinearDecoderCore<Passes>::add(const LinearFamilyInputs<T>& inputs, const View<T>& out,
                                    const Saved& saved, const ExecutorRef& executor) {
  const Index rows = shape_.batch * shape_.query_heads == 0 ? 0 : inputs.q.rows();
  const Index tokens = detail::new_tokens(inputs);
  const Index heads = shape_.batch * shape_.key_heads;
  const Index workers = worker_count(executor, heads);
  const FarWeights<C>& weights = weights_of(inputs);
  // Every head has its own unrounded rows, since the near field writes all at once.
  const Index wide =
      Settings::kHasNear ? Stream::wide_elements(linear_shape(), group(), rows) : Index{0};
  const Index kernel = Stream::scratch_elements(linear_shape());
  const Index needed = (heads * wide + workers * kernel) * Index{sizeof(C)};
  if (needed > scratch_.size_bytes()) scratch_ = Workspace(needed);
  rows_.resize(static_cast<std::size_t>(workers * group()));
  C* const scratch = scratch_.template data<C>();
  if constexpr (Settings::kHasNear) {
    Passes::step_near(*near_, inputs, out, saved, rows, scratch, executor);
  }

  // When an executor throws, some heads' states may already contain the tokens.
  const detail::OnError forget([this] { clear(); });
  const Stream stream(inputs, group(), op_.far_field, weights, Settings::kHasNear, out);
  const typename Stream::RowBlock row_block{0, rows, 0, tokens, length_, length_ + tokens - rows};
  for_each_task(executor, heads, [&](Index task, Index worker) {
    typename Stream::Memory at;
    at.state = state_.template data<C>() + task * state_elements();
    at.delta = at.state + sums_elements();
    at.wide = scratch + task * wide;
    at.wide_rows = rows;
    at.kernel = scratch + heads * wide + worker * kernel;
    at.rows = rows_.data() + worker * group();
    stream.add(task / shape_.key_heads, task % shape_.key_heads, row_block, at);
  });
  length_ += tokens;
}

template <class Passes>
auto LinearDecoderCore<Passes>::weights_of(const LinearFamilyInputs<T>& inputs)
    -> const FarWeights<C>& {
  if constexpr (Settings::kHasNear) {
    if (inputs.q.rows() == 0) return weights_;
    std::vector<C> logits;
    for (const View<const C>& x : {inputs.near_logits, inputs.far_logits}) {
      logits.push_back(static_cast<C>(x.empty() ? 0 : x.heads()));
      logits.push_back(static_cast<C>(x.empty() ? 0 : x.width()));
      for (Index h = 0; !x.empty() && h < x.heads(); ++h) {
        for (Index c = 0; c < x.width(); ++c) logits.push_back(x(0, h, 0, c));
      }
    }
    if (logits != logits_ || !has_weights_) {
      LinearFamilyInputs<T> sized = inputs;
      sized.v = {nullptr, {shape_.batch, shape_.key_heads, 0, shape_.value_width}};
      weights_ = op_.weights(sized);
      logits_ = std::move(logits);
      has_weights_ = true;
    }
  }
  return weights_;
}

FOVEA_NAMESPACE_END
