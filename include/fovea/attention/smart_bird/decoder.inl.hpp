// SPDX-License-Identifier: MIT
/// \file
/// Included by decoder.hpp, where it is documented.
#pragma once

#include <string>
#include <utility>

#include "fovea/attention/call/decoder_check.hpp"
#include "fovea/attention/smart_bird/check.hpp"
#include "fovea/attention/smart_bird/decoder.hpp"
#include "fovea/attention/smart_bird/rows.hpp"
#include "fovea/core/on_error.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
SmartBirdDecoder<T>::SmartBirdDecoder(const char* name, const SmartBirdOptions& options,
                                      const DecoderShape& shape, Index sketch_width)
    : name_(name),
      options_(checked(name, options, shape, sketch_width)),
      shape_(shape),
      cache_({shape.batch, shape.key_heads, shape.width, shape.value_width}),
      sketch_(shape.batch, sketch_width) {
  if (shape.reserve > 0) reserve(shape.reserve);
}

template <class T>
SmartBirdDecoder<T>::SmartBirdDecoder(const SmartBirdDecoder& other, KeyValueCache<T> cache,
                                      SketchKeys<C> sketch)
    : name_(other.name_),
      options_(other.options_),
      shape_(other.shape_),
      cache_(std::move(cache)),
      sketch_(std::move(sketch)) {}

template <class T>
void SmartBirdDecoder<T>::rollback(Index length) {
  if (length < 0 || length > this->length()) {
    refuse(name_, "rollback", std::to_string(length),
           range_text<Index>(0, this->length()) + ", the tokens in the decoder");
  }
  cache_.truncate(length);
}

template <class T>
void SmartBirdDecoder<T>::reserve(Index tokens) {
  detail::check_at_least_0(name_, "reserve", tokens);
  cache_.reserve(tokens);
  sketch_.reserve(length(), tokens);
}

template <class T>
SmartBirdDecoder<T> SmartBirdDecoder<T>::fork() const {
  return SmartBirdDecoder(*this, cache_.copy(), sketch_.copy(length()));
}

template <class T>
void SmartBirdDecoder<T>::append_tokens(const SketchTokens<T>& tokens) {
  check_tokens(tokens.k, tokens.v, tokens.sketch_k);
  make_room(length() + tokens.k.rows());
  add(tokens.k, tokens.v, tokens.sketch_k);
}

template <class T>
SmartBirdOptions SmartBirdDecoder<T>::checked(const char* name, const SmartBirdOptions& options,
                                              const DecoderShape& shape, Index sketch_width) {
  check_smart_bird_options<C>(name, options);
  check_decoder_shape(name, shape, options.alignment);
  detail::check_at_least_0(name, "sketch_width", sketch_width);
  return options;
}

template <class T>
void SmartBirdDecoder<T>::check_tokens(const View<const T>& k, const View<const T>& v,
                                       const View<const C>& sketch_k) const {
  check_decoder_tokens(name_, shape_, k, v, kMostDecoderTokens - length());
  if (sketch_k.empty() && shape_.batch * k.rows() > 0) {
    refuse_missing(name_, "sketch_k", "[B, 1, n, d], the keys of the sketch");
  }
  if (sketch_k.empty()) return;
  detail::check_extent(name_, "sketch_k", sketch_k.shape(), 0, shape_.batch,
                       "the batch of the decoder");
  detail::check_extent(name_, "sketch_k", sketch_k.shape(), 1, 1,
                       "since all heads share the sketch");
  detail::check_extent(name_, "sketch_k", sketch_k.shape(), 2, k.rows(), "the rows of k");
  detail::check_extent(name_, "sketch_k", sketch_k.shape(), 3, sketch_.width(),
                       "the sketch_width of the decoder");
}

template <class T>
Index SmartBirdDecoder<T>::length_after(const SmartBirdInputs<T>& inputs) const {
  return length() + detail::new_tokens(inputs);
}

template <class T>
SmartBirdInputs<T> SmartBirdDecoder<T>::sized(SmartBirdInputs<T> inputs, Index tokens) const {
  static const T element{};
  static const C number{};
  inputs.k = {&element, {shape_.batch, shape_.key_heads, tokens, shape_.width}, {}};
  inputs.v = {&element, {shape_.batch, shape_.key_heads, tokens, shape_.value_width}, {}};
  inputs.sketch_k = {&number, {shape_.batch, 1, tokens, sketch_.width()}, {}};
  return inputs;
}

template <class T>
void SmartBirdDecoder<T>::check_step(const SmartBirdInputs<T>& inputs, const View<T>& out,
                                     const SmartBirdSaved<T>& saved) const {
  if (detail::has_new_tokens(inputs)) check_tokens(inputs.k, inputs.v, inputs.sketch_k);
  const Index after = length_after(inputs);
  check_decoder_rows(name_, shape_, inputs, after);
  check_smart_bird(name_, options_, sized(inputs, after), out, saved);
  const auto check_apart = [&](const char* name, const auto& written) {
    detail::check_apart(name_, name, written, "k", inputs.k);
    detail::check_apart(name_, name, written, "v", inputs.v);
    detail::check_apart(name_, name, written, "sketch_k", inputs.sketch_k);
  };
  check_apart("out", out);
  check_apart("lse", saved.lse);
  check_apart("indices", saved.indices);
}

template <class T>
void SmartBirdDecoder<T>::make_room(Index tokens) {
  cache_.make_room(tokens);
  sketch_.make_room(length(), tokens);
}

template <class T>
void SmartBirdDecoder<T>::add(const View<const T>& k, const View<const T>& v,
                              const View<const C>& sketch_k) noexcept {
  for (Index b = 0; b < shape_.batch; ++b) sketch_.put(sketch_k, b, 0, length(), k.rows());
  cache_.append(k, v, 0, k.rows());
}

template <class T>
void SmartBirdDecoder<T>::run_step(const SmartBirdInputs<T>& inputs, const View<T>& out,
                                   const SmartBirdSaved<T>& saved, const ExecutorRef& executor) {
  check_step(inputs, out, saved);
  const Index after = length_after(inputs);
  auto&& threads = for_work(executor, [&] {
    return selection_products(options_.policy, inputs.sketch_q, after, shape_.query_heads);
  });
  make_room(after);
  IndexedInputs<T> all = with_indices(inputs, {});
  all.k = cache_.keys(0, after);
  all.v = cache_.values(0, after);
  SmartBirdRows<T> rows(options_, all, out, saved, memory_of(threads));
  rows.take_scratch(threads);
  SketchSelection<C> selection(
      options_, {inputs.sketch_q, inputs.draws, rows.indices(), rows.is_number()}, sketch_);
  const Index blocks = selection.block_count(inputs.q.rows());
  const Index tasks = shape_.query_heads == 0 ? 0 : shape_.batch * blocks;
  selection.take_scratch(tasks, after, false, threads);
  memory_of(threads).require();
  const detail::OnError forget([this, length = length()] { cache_.truncate(length); });
  if (detail::has_new_tokens(inputs)) add(inputs.k, inputs.v, inputs.sketch_k);
  for_each_task(threads, tasks, [&](Index task, Index worker) {
    const Index b = task / blocks;
    selection.run({b, b, 0, inputs.q.rows(), 0, after, after, after - inputs.q.rows(), after},
                  SketchSelection<C>::block({0, inputs.q.rows()}, task % blocks), worker);
  });
  rows.compute(threads);
}

FOVEA_PASSES(SmartBirdDecoder)

FOVEA_NAMESPACE_END
