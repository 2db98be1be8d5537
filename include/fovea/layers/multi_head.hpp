// SPDX-License-Identifier: MIT
/// \file
/// Multi-head attention with projections, for every operator (Vaswani et al. 2017, section 3.2.2).
/// Besides the operator it costs 2 Dm (2 H + 2 Hk) D flops per token, twice that in the backward
/// pass.
#pragma once

#include "fovea/layers/head_attention.hpp"
#include "fovea/layers/multi_head_decoder.hpp"
#include "fovea/layers/rotary.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of MultiHead.
struct MultiHeadOptions {
  Index width = 0;           ///< Dm, the channels of x and y; must be set
  Index heads = 1;           ///< H, the number of query heads
  Index key_heads = 0;       ///< Hk, the number of key heads, which divides heads; if 0, heads
  Index head_width = 0;      ///< D, the width of a head; if 0, width / heads
  bool bias = false;         ///< whether the projections have a bias
  Index sketch_width = 4;    ///< d, the width of Smart Bird's sketch
  Index features = 64;       ///< R, Performer's random features
  Index sorted_blocks = 64;  ///< the maximum blocks of a sequence, for Sinkhorn
  /// Rotary positions of queries and keys.
  std::optional<RotaryOptions> rotary = {};
  bool alibi = false;   ///< whether ALiBi's slopes (`alibi_slopes`) change the logits
  bool sinks = false;   ///< whether each head learns a sink, called "sinks"
  Index length = 0;     ///< the maximum sequence length, for Linformer
  Index projected = 0;  ///< P, the rows of Linformer's projections
  /// Whether the rows of Longformer's global positions have their own projections, "global_qkv".
  /// Incompatible with rotary positions, sinks, and a gradient of the tokens' bias.
  bool global_projections = false;
};

/// The head sizes given by the options.
/// \throws std::invalid_argument if they are inconsistent
inline HeadSizes head_sizes(const char* layer, const MultiHeadOptions& options) {
  check_size(layer, "width", options.width);
  check_size(layer, "heads", options.heads);
  check_size(layer, "sketch_width", options.sketch_width);
  check_size(layer, "features", options.features);
  check_size(layer, "sorted_blocks", options.sorted_blocks);
  const Index key_heads = options.key_heads == 0 ? options.heads : options.key_heads;
  if (key_heads < 0 || options.heads % key_heads != 0) {
    refuse(layer, "key_heads", std::to_string(key_heads),
           "a divisor of the " + std::to_string(options.heads) + " heads");
  }
  if (options.head_width == 0 && options.width % options.heads != 0) {
    refuse(layer, "heads", std::to_string(options.heads),
           "a divisor of the width " + std::to_string(options.width) + ", or a head_width");
  }
  const Index head_width =
      options.head_width == 0 ? options.width / options.heads : options.head_width;
  check_size(layer, "head_width", head_width);
  return {.width = options.width,
          .heads = options.heads,
          .key_heads = key_heads,
          .head_width = head_width,
          .sketch_width = options.sketch_width,
          .features = options.features,
          .sorted_blocks = options.sorted_blocks,
          .length = options.length,
          .projected = options.projected,
          .bias = options.bias,
          .global_projections = options.global_projections};
}

/// y = concat_h(Op(x W_Q^h, x W_K^h, x W_V^h)) W_O, for x and y [B, 1, L, Dm] with dense rows. W_Q,
/// W_K and W_V are concatenated in one matrix [Dm, (H + 2 Hk) D], each with its heads concatenated.
/// The operator reads the columns in place. With rotary positions, queries and keys are first
/// rotated in place; row i has position i, or in packed sequences its distance from the sequence's
/// first row.
///
/// Operator inputs besides q, k and v come from its LearnedInputs (logits of FMM attention, rates
/// of the delta rule, Smart Bird's sketch), from the options (ALiBi, sinks) or from `Tokens` (bias,
/// mask, packed sequences, the lists of IndexedAttention, the dominant indices of FsatAttention).
/// Inputs that the operator does not read are rejected. Rows from a key length on are computed,
/// too.
///
/// The layer saves (2 H + 2 Hk) D numbers per token, uses as many for gradients, and saves what the
/// operator saves.
/// \tparam W the type of the projections' weights, as in Linear
template <class Op, class T = float, class W = T>
class MultiHead : public LayerCalls<MultiHead<Op, T, W>, T, Tokens<T>> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    Buffer<T> projected;    ///< [B, 1, L, (H + 2 Hk) D] q, k and v, concatenated
    Buffer<T> d_projected;  ///< [B, 1, L, (H + 2 Hk) D] their gradients
    typename HeadAttention<Op, T>::Saved heads;  ///< the operator's
    RotaryAngles<T> angles;                      ///< of rotary positions, if any
  };

  /// An empty layer; assign one before use.
  MultiHead() = default;

  /// Draws the weights. \throws std::invalid_argument if sizes are inconsistent
  MultiHead(const Op& op, const MultiHeadOptions& options, Initialiser& initialiser)
      : sizes_(head_sizes("MultiHead", options)),
        projection_(sizes_.width, columns(), initialiser,
                    {.bias = options.bias, .outputs_of_one = sizes_.width, .name = "qkv"}),
        attention_("MultiHead", op, sizes_, initialiser,
                   {.alibi = options.alibi, .sinks = options.sinks}),
        out_(sizes_.heads * sizes_.head_width, sizes_.width, initialiser,
             {.bias = options.bias, .name = "out"}) {
    if (options.global_projections) check_global_projections(options);
    if (options.rotary) rotary_ = Rotary<T>("MultiHead", *options.rotary, sizes_.head_width);
  }

  /// The operator; its options may change between steps.
  Op& op() { return attention_.op; }
  /// The operator (read-only).
  const Op& op() const { return attention_.op; }
  /// The sizes of the heads.
  const HeadSizes& sizes() const { return sizes_; }

  /// Lists the projections, the learned inputs and the sinks.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.projection_);
    f(self.attention_);
    f(self.out_);
  }

  using LayerCalls<MultiHead<Op, T, W>, T, Tokens<T>>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument as the operator, or if a shape or layout is wrong
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("MultiHead", tokens, sizes_.width, y, sizes_.width);
    check_sequences("MultiHead", tokens, detail::rows_of_sequence(tokens.x, executor));
    const View<T> projected = saved.projected.resize(y.batch(), y.rows(), columns());
    projection_.forward(tokens.x, projected, executor);
    rotary_.turn(queries_and_keys(projected),
                 {.cu_seqlens = tokens.cu_seqlens, .angles = &saved.angles}, executor);
    const View<const T> from(projected);
    out_.forward(attention_.forward(parts(from), tokens, saved.heads, executor), y, executor);
  }

  /// Adds to the gradients of the parameters. If given, d_x is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward("MultiHead", tokens, sizes_.width, d_y, sizes_.width, d_x);
    check_saved("MultiHead", saved.projected.view(), tokens.x, columns());
    check_sequences("MultiHead", tokens, detail::rows_of_sequence(tokens.x, executor));
    const View<const T> projected(saved.projected.view());
    const View<T> d_projected = saved.d_projected.resize(d_y.batch(), d_y.rows(), columns());
    const View<T> d_heads = attention_.d_out(saved.heads);
    const auto qkv = parts(projected);
    const auto d_qkv = parts(d_projected);
    attention_.check_backward("MultiHead", qkv, tokens, saved.heads, d_qkv, executor);
    typename Linear<T, W>::Saved nothing;
    out_.backward(saved.heads.out.view(), nothing, d_y, d_heads, executor);
    attention_.backward(qkv, tokens, saved.heads, d_qkv, executor);
    rotary_.turn(queries_and_keys(d_projected),
                 {.cu_seqlens = tokens.cu_seqlens, .backward = true, .angles = &saved.angles},
                 executor);
    projection_.backward(tokens.x, nothing, d_projected, d_x, executor);
    attention_.finish(tokens, saved.heads, d_x, executor);
  }

  /// A decoder: the same layer, token by token.
  /// \tparam S the type of its cache: T, or a 16-bit type
  /// \throws std::invalid_argument as the operator's decoder; std::bad_alloc
  template <class S = T>
  [[nodiscard]] MultiHeadDecoder<Op, T, W, S> decoder(const LayerDecoderShape& shape = {}) const {
    return {*this, shape};
  }

 private:
  template <class, class, class, class>
  friend class MultiHeadDecoder;

  static void check_global_projections(const MultiHeadOptions& options) {
    const auto refuse_if = [](bool is_wrong, const char* why) {
      if (is_wrong) refuse("MultiHead", "global_projections", "true", std::string("false") + why);
    };
    if constexpr (!requires(InputsOf<Op, T> inputs) { inputs.global_q; }) {
      refuse("MultiHead", "global_projections", "true",
             std::string("false: ") + Op::name() + " does not read them");
    }
    refuse_if(options.rotary.has_value(), " with rotary: rotary positions are not applied to them");
    refuse_if(options.sinks, " with sinks: the gradient of sinks is not supported with them");
  }

  Index columns() const { return (sizes_.heads + 2 * sizes_.key_heads) * sizes_.head_width; }

  /// q, k and v, or their gradients, as views of the projected matrix.
  template <class U>
  std::array<View<U>, 3> parts(const View<U>& projected) const {
    const Index heads = sizes_.heads;
    const Index key_heads = sizes_.key_heads;
    const Index head_width = sizes_.head_width;
    return {as_heads(projected, 0, heads, head_width),
            as_heads(projected, heads * head_width, key_heads, head_width),
            as_heads(projected, (heads + key_heads) * head_width, key_heads, head_width)};
  }

  /// The heads of q and k, which are adjacent, as a view of the projected matrix.
  View<T> queries_and_keys(const View<T>& projected) const {
    return as_heads(projected, 0, sizes_.heads + sizes_.key_heads, sizes_.head_width);
  }

  HeadSizes sizes_;
  Rotary<T> rotary_;
  Linear<T, W> projection_;
  HeadAttention<Op, T> attention_;
  Linear<T, W> out_;
};

FOVEA_NAMESPACE_END
