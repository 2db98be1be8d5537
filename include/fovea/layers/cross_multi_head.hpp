// SPDX-License-Identifier: MIT
/// \file
/// Multi-head cross-attention: keys and values are computed from another sequence, the memory
/// (Vaswani et al. 2017, section 3.2.3). Besides the operator it costs 4 Dm H D flops per row of x
/// and 4 Dmem Hk D per row of the memory, twice that in the backward pass.
#pragma once

#include <vector>

#include "fovea/core/members.hpp"
#include "fovea/layers/multi_head.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of CrossMultiHead.
struct CrossMultiHeadOptions {
  Index width = 0;         ///< Dm, the channels of x and y; must be set
  Index memory_width = 0;  ///< Dmem, the channels of the memory; if 0, width
  Index heads = 1;         ///< H, the number of query heads
  Index key_heads = 0;     ///< Hk, the number of key heads, which divides heads; if 0, heads
  Index head_width = 0;    ///< D, the width of a head; if 0, width / heads
  bool bias = false;       ///< whether the projections have a bias
  bool sinks = false;      ///< whether each head learns a sink, called "sinks"
};

/// Two sequences: rows that attend, and the memory that they attend to.
template <class T>
struct CrossTokens {
  ViewMember<const T> x = {};       ///< [B, 1, Lq, Dm] the channels of the rows that attend
  ViewMember<const T> memory = {};  ///< [B, 1, Lk, Dmem] the channels of the memory
  /// [B] the number of memory rows of each sequence; if empty, Lk for all.
  IndexSpan key_lengths = {};
  ViewMember<const T> bias = {};     ///< [B, H, Lq, Lk], any may be 1: added to the logits
  ViewMember<const bool> mask = {};  ///< [B, H, Lq, Lk], any may be 1: false hides the pair
  /// Same shape as bias: if given, backward passes add the gradient of bias to it.
  ViewMember<T> d_bias = {};
  std::optional<TrainingStep> training = {};  ///< the training step, as in Tokens
};

template <class Op, class T>
class CrossMultiHeadDecoder;

/// y = concat_h(Op(x W_Q^h, m W_K^h, m W_V^h)) W_O, for x and y [B, 1, Lq, Dm] and the memory m [B,
/// 1, Lk, Dmem], with dense rows. W_K and W_V are concatenated in one matrix [Dmem, 2 Hk D]. The
/// operator is any softmax operator. If its pattern depends on row positions, its alignment defines
/// them; non-causal FullAttention does not. With key lengths such a pattern needs
/// CausalAlignment::key_length or top_left.
///
/// The layer saves 2 H D numbers per row of x and 2 Hk D per row of the memory, uses as many for
/// gradients, and saves what the operator saves. Across ranks the memory is sharded like x.
template <class Op, class T = float>
class CrossMultiHead : public LayerCalls<CrossMultiHead<Op, T>, T, CrossTokens<T>> {
  static_assert(std::derived_from<Op, SoftmaxOperator<Op>>,
                "CrossMultiHead requires a softmax operator, such as FullAttention");

 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    Buffer<T> q;     ///< [B, 1, Lq, H D] the queries, heads concatenated
    Buffer<T> kv;    ///< [B, 1, Lk, 2 Hk D] keys and values
    Buffer<T> d_q;   ///< the gradient of q
    Buffer<T> d_kv;  ///< the gradient of kv
    typename HeadAttention<Op, T>::Saved heads;  ///< the operator's
  };

  /// An empty layer; assign one before use.
  CrossMultiHead() = default;

  /// Draws the weights. \throws std::invalid_argument if sizes are inconsistent
  CrossMultiHead(const Op& op, const CrossMultiHeadOptions& options, Initialiser& initialiser)
      : sizes_(sizes_of(options)),
        q_(sizes_.width, columns(), initialiser,
           {.bias = options.bias, .outputs_of_one = sizes_.width, .name = "q"}),
        kv_(options.memory_width == 0 ? sizes_.width : options.memory_width, 2 * key_columns(),
            initialiser, {.bias = options.bias, .outputs_of_one = sizes_.width, .name = "kv"}),
        attention_("CrossMultiHead", op, sizes_, initialiser, {.sinks = options.sinks}),
        out_(columns(), sizes_.width, initialiser, {.bias = options.bias, .name = "out"}) {}

  /// The operator; its options may change between steps.
  Op& op() { return attention_.op; }
  /// The operator (read-only).
  const Op& op() const { return attention_.op; }
  /// The sizes of the heads.
  const HeadSizes& sizes() const { return sizes_; }
  /// Dmem, the channels of the memory.
  Index memory_width() const { return kv_.in(); }

  /// Lists the projections and the sinks.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.q_);
    f(self.kv_);
    f(self.attention_);
    f(self.out_);
  }

  using LayerCalls<CrossMultiHead<Op, T>, T, CrossTokens<T>>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument as the operator, or if a shape or layout is wrong
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const CrossTokens<T>& tokens, const View<T>& y, Saved& saved,
               E&& executor = {}) const {
    check_forward(kName, source_of(tokens), sizes_.width, y, sizes_.width);
    check_memory(tokens.x.batch(), tokens.memory, tokens.key_lengths, executor);
    check_written(kName, "y", y, "memory", tokens.memory);
    project(tokens.memory, saved.kv, executor);
    attend(tokens, saved.kv, y, saved, executor);
  }

  /// Adds to the gradients of the parameters. If given, d_x is written, and d_memory is written or,
  /// for several layers that read one memory, added to.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const CrossTokens<T>& tokens, Saved& saved, const View<const T>& d_y,
                const View<T>& d_x, const View<T>& d_memory, E&& executor = {},
                OutputMode memory_into = OutputMode::write) {
    check_backward(kName, source_of(tokens), sizes_.width, d_y, sizes_.width, d_x);
    check_memory(tokens.x.batch(), tokens.memory, tokens.key_lengths, executor);
    check_d_memory(tokens, d_y, d_x, d_memory);
    check_saved(kName, saved.q.view(), tokens.x, columns());
    check_saved(kName, saved.kv.view(), tokens.memory, 2 * key_columns());
    const View<T> d_q = saved.d_q.resize(saved.q.view().shape());
    const View<T> d_kv = saved.d_kv.resize(saved.kv.view().shape());
    const View<T> d_heads = attention_.d_out(saved.heads);
    const Tokens<T> source = source_of(tokens);
    const auto qkv = parts<const T>(saved.q.view(), saved.kv.view());
    const auto d_qkv = parts<T>(d_q, d_kv);
    attention_.check_backward(kName, qkv, source, saved.heads, d_qkv, executor);
    typename Linear<T>::Saved nothing;
    out_.backward(saved.heads.out.view(), nothing, d_y, d_heads, executor);
    attention_.backward(qkv, source, saved.heads, d_qkv, executor);
    attention_.finish(source, saved.heads, {}, executor);
    q_.backward(tokens.x, nothing, d_q, d_x, executor);
    kv_.backward(tokens.memory, nothing, d_kv, d_memory, executor, memory_into);
  }

  /// A decoder for rows that arrive incrementally. The memory's keys and values are computed now.
  /// \param memory [B, 1, Lk, Dmem] with dense rows \param key_lengths [B], or empty
  /// \throws std::invalid_argument if a shape or layout is wrong, or if the operator's pattern
  /// depends on row positions \throws std::bad_alloc
  template <class E = Serial>
  [[nodiscard]] CrossMultiHeadDecoder<Op, T> decoder(const View<const T>& memory,
                                                     IndexSpan key_lengths = {},
                                                     E&& executor = {}) const {
    return {*this, memory, key_lengths, executor};
  }

 private:
  friend class CrossMultiHeadDecoder<Op, T>;

  static constexpr const char* kName = "CrossMultiHead";

  static HeadSizes sizes_of(const CrossMultiHeadOptions& options) {
    if (options.memory_width != 0) check_size(kName, "memory_width", options.memory_width);
    return head_sizes(kName, {.width = options.width,
                              .heads = options.heads,
                              .key_heads = options.key_heads,
                              .head_width = options.head_width});
  }

  Index columns() const { return sizes_.heads * sizes_.head_width; }
  Index key_columns() const { return sizes_.key_heads * sizes_.head_width; }

  template <class E>
  void check_memory(Index batch, const View<const T>& memory, IndexSpan key_lengths,
                    const E& executor) const {
    check_activations(kName, "memory", memory, memory_width());
    detail::check_extent(kName, "memory", memory.shape(), 0, batch, "the batch of x");
    detail::check_key_lengths(kName, key_lengths, batch, "x",
                              detail::rows_of_sequence(memory, executor), "memory");
  }

  void check_d_memory(const CrossTokens<T>& tokens, const View<const T>& d_y, const View<T>& d_x,
                      const View<T>& d_memory) const {
    if (!d_x.empty()) check_written(kName, "d_x", d_x, "memory", tokens.memory);
    detail::check_apart(kName, "d_bias", tokens.d_bias, "memory", tokens.memory);
    if (d_memory.empty()) return;
    check_activations(kName, "d_memory", d_memory, memory_width());
    detail::check_extents(kName, "d_memory", d_memory.shape(), tokens.memory.shape(),
                          "the shape of memory");
    check_written(kName, "d_memory", d_memory, "memory", tokens.memory);
    check_written(kName, "d_memory", d_memory, "x", tokens.x);
    check_written(kName, "d_memory", d_memory, "d_y", d_y);
    check_written(kName, "d_memory", d_memory, "d_x", d_x);
    detail::check_apart_from_terms(kName, "d_memory", d_memory, source_of(tokens));
    detail::check_apart(kName, "d_memory", d_memory, "d_bias", tokens.d_bias);
  }

  /// q, k and v as the operator reads them, or their gradients.
  template <class U>
  std::array<View<U>, 3> parts(const View<U>& q, const View<U>& kv) const {
    return {as_heads(q, 0, sizes_.heads, sizes_.head_width),
            as_heads(kv, 0, sizes_.key_heads, sizes_.head_width),
            as_heads(kv, key_columns(), sizes_.key_heads, sizes_.head_width)};
  }

  /// The attention inputs of both sequences.
  static Tokens<T> source_of(const CrossTokens<T>& tokens) {
    Tokens<T> source(tokens.x, tokens.key_lengths);
    source.bias = tokens.bias;
    source.mask = tokens.mask;
    source.d_bias = tokens.d_bias;
    source.training = tokens.training;
    return source;
  }

  /// Computes keys and values of the memory.
  template <class E>
  void project(const View<const T>& memory, Buffer<T>& kv, E&& executor) const {
    kv_.forward(memory, kv.resize(memory.batch(), memory.rows(), 2 * key_columns()), executor);
  }

  /// Computes y from keys and values; the memory itself is not read.
  template <class E>
  void attend(const CrossTokens<T>& tokens, const Buffer<T>& kv, const View<T>& y, Saved& saved,
              E&& executor) const {
    const View<T> q = saved.q.resize(y.batch(), y.rows(), columns());
    q_.forward(tokens.x, q, executor);
    const auto qkv = parts<const T>(q, kv.view());
    out_.forward(attention_.forward(qkv, source_of(tokens), saved.heads, executor), y, executor);
  }

  HeadSizes sizes_;
  Linear<T> q_;
  Linear<T> kv_;
  HeadAttention<Op, T> attention_;
  Linear<T> out_;
};

/// Returned by `layer.decoder(memory)` of CrossMultiHead: holds the memory's keys and values and
/// attends from rows that arrive incrementally. `step` gives the same bits as `layer.forward` for
/// these rows, for any number of threads. Dropout is not applied.
///
/// It reads the layer's weights at each step, so the layer must outlive it and must not move. It
/// stores 2 Hk D numbers per row of the memory, which it does not read again, and 2 H D per row of
/// a step. It is not thread-safe.
template <class Op, class T = float>
class CrossMultiHeadDecoder {
 public:
  /// Computes keys and values. \throws as CrossMultiHead::decoder
  template <class E>
  CrossMultiHeadDecoder(const CrossMultiHead<Op, T>& layer, const View<const T>& memory,
                        IndexSpan key_lengths, E&& executor)
      : layer_(&layer), key_lengths_(key_lengths.begin(), key_lengths.end()) {
    check_pattern(layer.op());
    layer.check_memory(memory.batch(), memory, key_lengths, executor);
    layer.project(memory, kv_, executor);
  }

  /// Computes y for n rows.
  /// \param x [B, 1, n, Dm] \param y [B, 1, n, Dm] is written
  /// \throws std::invalid_argument if a shape or layout is wrong; std::bad_alloc
  template <class E = Serial>
  void step(const View<const T>& x, const View<T>& y, E&& executor = {}) {
    const Index width = layer_->sizes().width;
    check_forward("CrossMultiHead", x, width, y, width);
    detail::check_extent("CrossMultiHead", "x", x.shape(), 0, kv_.view().batch(),
                         "the batch of the memory");
    layer_->attend({.x = x, .key_lengths = key_lengths_}, kv_, y, scratch_, executor);
  }

 private:
  /// The position of a step's rows is unknown, so every row must see all keys.
  static void check_pattern(const Op& op) {
    using Pattern = std::remove_cvref_t<decltype(op.pattern(Index{0}, SequenceShape()))>;
    static_assert(
        !requires { op.modifier; },
        "a decoder of cross attention has no positions for a score modifier");
    static_assert(std::same_as<Pattern, Dense> || std::same_as<Pattern, Window>,
                  "a decoder of cross attention requires an operator whose rows see all keys, such "
                  "as FullAttention");
    if constexpr (std::same_as<Pattern, Window>) {
      const Window seen = op.pattern(Index{0}, SequenceShape());
      if (seen.left == Window::kUnbounded && seen.right == Window::kUnbounded) return;
      refuse("CrossMultiHead", "the operator is causal or has a window",
             "expected an operator whose rows see all keys, since rows have no positions in this "
             "decoder");
    }
  }

  const CrossMultiHead<Op, T>* layer_;
  std::vector<Index> key_lengths_;
  Buffer<T> kv_;
  typename CrossMultiHead<Op, T>::Saved scratch_;
};

FOVEA_NAMESPACE_END
