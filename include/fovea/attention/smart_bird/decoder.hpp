// SPDX-License-Identifier: MIT
/// \file
/// Incremental Smart Bird attention: the sketch of new queries chooses among the cached sketch
/// keys, and the chosen keys are attended to.
#pragma once

#include <string>
#include <utility>

#include "fovea/attention/call/decoder_check.hpp"
#include "fovea/attention/call/key_value_cache.hpp"
#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/smart_bird/check.hpp"
#include "fovea/attention/smart_bird/rows.hpp"
#include "fovea/core/members.hpp"
#include "fovea/core/on_error.hpp"

FOVEA_NAMESPACE_BEGIN

/// What a decoder that chooses keys by a sketch takes for n new tokens.
template <class T>
struct SketchTokens {
  ViewMember<const T> k;                  ///< keys, [B, Hk, n, D]
  ViewMember<const T> v;                  ///< values, [B, Hk, n, Dv]
  ViewMember<const Compute<T>> sketch_k;  ///< keys of the sketch, [B, 1, n, d]
};

/// What `SmartBirdAttention::decoder<T>(shape)` returns: a growing sequence of tokens, and the
/// attention of its last positions.
/// `step` gives, bit for bit, what `forward` gives for the same queries and all keys so far. That
/// holds whatever pieces the tokens were appended in, and for any number of threads.
/// A step looks at all tokens, whatever the option `search` says: to keep them in blocks would cost
/// more than it saves in a few rows.
/// Cost of a row: O(d) for each token, once for all heads; some draws; and K keys and values for
/// each head. Memory: keys, values and d more numbers for each token, and at most twice that.
/// It must not be called from several threads at once. Errors are std::invalid_argument or
/// std::bad_alloc, and leave the decoder and the outputs as they were.
template <class T>
class SmartBirdDecoder
    : public AppendCalls<SmartBirdDecoder<T>, SketchTokens<T>>,
      public StepCalls<SmartBirdDecoder<T>, T, SmartBirdInputs<T>, SmartBirdSaved<T>> {
 public:
  /// The type of the arithmetic.
  using C = Compute<T>;

  /// An empty decoder.
  /// \param name name of the operator, for messages
  /// \param sketch_width d
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder;
  /// std::bad_alloc for shape.reserve
  SmartBirdDecoder(const char* name, const SmartBirdOptions& options, const DecoderShape& shape,
                   Index sketch_width)
      : name_(name),
        options_(checked(name, options, shape, sketch_width)),
        shape_(shape),
        cache_({shape.batch, shape.key_heads, shape.width, shape.value_width}),
        sketch_(shape.batch, sketch_width) {
    if (shape.reserve > 0) reserve(shape.reserve);
  }

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return cache_.length(); }

  /// Bytes of memory for keys, values and sketch keys.
  [[nodiscard]] Index memory_bytes() const { return cache_.memory_bytes() + sketch_.size_bytes(); }

  /// Forgets the tokens from position `length` on.
  /// \throws std::invalid_argument if `length` is not one of 0 to length()
  void rollback(Index length) {
    if (length < 0 || length > this->length()) {
      refuse(name_, "rollback", std::to_string(length),
             range_text<Index>(0, this->length()) + ", the tokens in the decoder");
    }
    cache_.truncate(length);
  }

  /// Forgets all tokens and keeps the memory.
  void clear() noexcept { cache_.truncate(0); }

  /// Takes memory for that many tokens in all.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) {
    detail::check_at_least_0(name_, "reserve", tokens);
    cache_.reserve(tokens);
    sketch_.reserve(length(), tokens);
  }

  /// A copy of the decoder that is independent of it, with memory for just its tokens.
  /// \throws std::bad_alloc
  [[nodiscard]] SmartBirdDecoder fork() const {
    return SmartBirdDecoder(*this, cache_.copy(), sketch_.copy(length()));
  }

 private:
  friend class AppendCalls<SmartBirdDecoder<T>, SketchTokens<T>>;
  friend class StepCalls<SmartBirdDecoder<T>, T, SmartBirdInputs<T>, SmartBirdSaved<T>>;

  /// Appends n tokens (AppendCalls). Cost: O(D + Dv) for each token and key head, and O(d) for each
  /// token, on average.
  void append_tokens(const SketchTokens<T>& tokens) {
    check_tokens(tokens.k, tokens.v, tokens.sketch_k);
    make_room(length() + tokens.k.rows());
    add(tokens.k, tokens.v, tokens.sketch_k);
  }

  SmartBirdDecoder(const SmartBirdDecoder& other, KeyValueCache<T> cache, SketchKeys<C> sketch)
      : name_(other.name_),
        options_(other.options_),
        shape_(other.shape_),
        cache_(std::move(cache)),
        sketch_(std::move(sketch)) {}

  static SmartBirdOptions checked(const char* name, const SmartBirdOptions& options,
                                  const DecoderShape& shape, Index sketch_width) {
    check_smart_bird_options<C>(name, options);
    check_decoder_shape(name, shape, options.alignment);
    detail::check_at_least_0(name, "sketch_width", sketch_width);
    return options;
  }

  void check_tokens(const View<const T>& k, const View<const T>& v,
                    const View<const C>& sketch_k) const {
    check_decoder_tokens(name_, shape_, k, v, kMostTokens - length());
    if (sketch_k.is_none() && shape_.batch * k.rows() > 0) {
      refuse_missing(name_, "sketch_k", "[B, 1, n, d], the keys of the sketch");
    }
    if (sketch_k.is_none()) return;
    detail::check_extent(name_, "sketch_k", sketch_k.shape(), 0, shape_.batch,
                         "the batch of the decoder");
    detail::check_extent(name_, "sketch_k", sketch_k.shape(), 1, 1,
                         "since all heads share the sketch");
    detail::check_extent(name_, "sketch_k", sketch_k.shape(), 2, k.rows(), "the rows of k");
    detail::check_extent(name_, "sketch_k", sketch_k.shape(), 3, sketch_.width(),
                         "the sketch_width of the decoder");
  }

  Index length_after(const SmartBirdInputs<T>& inputs) const {
    return length() + detail::new_tokens(inputs);
  }

  /// The inputs with keys of these sizes, of which the values do not matter.
  SmartBirdInputs<T> sized(SmartBirdInputs<T> inputs, Index tokens) const {
    static const T element{};
    static const C number{};
    inputs.k = {&element, {shape_.batch, shape_.key_heads, tokens, shape_.width}, {}};
    inputs.v = {&element, {shape_.batch, shape_.key_heads, tokens, shape_.value_width}, {}};
    inputs.sketch_k = {&number, {shape_.batch, 1, tokens, sketch_.width()}, {}};
    return inputs;
  }

  void check_step(const SmartBirdInputs<T>& inputs, const View<T>& out,
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

  /// Makes room for that many tokens in all.
  /// \throws std::bad_alloc, with no token changed
  void make_room(Index tokens) {
    cache_.make_room(tokens);
    sketch_.make_room(length(), tokens);
  }

  /// Appends tokens.
  /// \pre there is room for them
  void add(const View<const T>& k, const View<const T>& v, const View<const C>& sketch_k) noexcept {
    for (Index b = 0; b < shape_.batch; ++b) sketch_.put(sketch_k, b, 0, length(), k.rows());
    cache_.append(k, v, 0, k.rows());
  }

  /// One step (StepCalls). The memory is taken first, then the tokens, and after that nothing but
  /// an executor throws.
  void run_step(const SmartBirdInputs<T>& inputs, const View<T>& out,
                const SmartBirdSaved<T>& saved, const ExecutorRef& executor) {
    check_step(inputs, out, saved);
    const Index after = length_after(inputs);
    auto&& threads = for_work(
        executor, [&] { return selection_products(inputs.sketch_q, after, shape_.query_heads); });
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
    rows.attend(threads);
  }

  static constexpr Index kMostTokens = kMostDecoderTokens;

  const char* name_;
  SmartBirdOptions options_;
  DecoderShape shape_;
  KeyValueCache<T> cache_;
  SketchKeys<C> sketch_;
};

FOVEA_NAMESPACE_END
