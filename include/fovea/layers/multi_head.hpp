// SPDX-License-Identifier: MIT
/// \file
/// Attention of several heads between projections, for every operator: x to y (Vaswani et al. 2017,
/// section 3.2.2). Cost: 2 Dm (2 H + 2 Hk) D flops per token beside the operator, twice that in the
/// backward pass.
#pragma once

#include "fovea/layers/head_attention.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of MultiHead.
struct MultiHeadOptions {
  Index width = 0;         ///< Dm, of x and y
  Index heads = 1;         ///< of the queries
  Index key_heads = 0;     ///< divides heads; 0: as many
  Index head_width = 0;    ///< D; 0: width / heads
  bool bias = false;       ///< of all projections
  Index sketch_width = 4;  ///< of Smart Bird's sketch
};

/// The sizes of heads that options ask for. \throws std::invalid_argument
inline HeadSizes head_sizes(const char* layer, const MultiHeadOptions& options) {
  check_size(layer, "width", options.width);
  check_size(layer, "heads", options.heads);
  check_size(layer, "sketch_width", options.sketch_width);
  const Index key_heads = options.key_heads == 0 ? options.heads : options.key_heads;
  if (key_heads < 0 || options.heads % key_heads != 0) {
    refuse(layer, "key_heads", std::to_string(key_heads),
           "a divisor of " + std::to_string(options.heads) + ", the heads");
  }
  if (options.head_width == 0 && options.width % options.heads != 0) {
    refuse(layer, "heads", std::to_string(options.heads),
           "a divisor of " + std::to_string(options.width) +
               ", the width, since no head_width is given");
  }
  const Index head_width =
      options.head_width == 0 ? options.width / options.heads : options.head_width;
  check_size(layer, "head_width", head_width);
  return {.width = options.width,
          .heads = options.heads,
          .key_heads = key_heads,
          .head_width = head_width,
          .sketch_width = options.sketch_width};
}

/// y = concat_h(Op(x W_Q^h, x W_K^h, x W_V^h)) W_O for x and y [B, 1, L, Dm] with dense rows.
/// W_Q, W_K and W_V stand side by side in one matrix [Dm, (H + 2 Hk) D], heads inside each; the
/// operator reads its columns where they are. What an operator reads beside q, k and v
/// comes from its LearnedInputs (logits of FMM attention, rates of the delta rule, Smart Bird's
/// sketch) or from `Tokens` (the lists of IndexedAttention, the dominant indices of FsatAttention).
/// Rows behind a key length are rows too: what the operator makes of their queries.
/// Memory: (2 H + 2 Hk) D numbers per token kept, and as many for gradients, beside the operator's
/// own. The bits are the same for any number of threads.
template <class Op, class T = float>
class MultiHead : public LayerCalls<MultiHead<Op, T>, T, Tokens<T>> {
 public:
  struct Saved {
    Buffer<T> projected;  ///< [B, 1, L, (H + 2 Hk) D]
    Buffer<T> d_projected;
    typename HeadAttention<Op, T>::Saved heads;
  };

  MultiHead() = default;

  /// \throws std::invalid_argument sizes that do not go together
  MultiHead(const Op& op, const MultiHeadOptions& options, Initialiser& initialiser)
      : sizes_(head_sizes("MultiHead", options)),
        projection_(sizes_.width, columns(), initialiser,
                    {.bias = options.bias, .outputs_of_one = sizes_.width, .name = "qkv"}),
        attention_(op, sizes_, initialiser),
        out_(sizes_.heads * sizes_.head_width, sizes_.width, initialiser,
             {.bias = options.bias, .name = "out"}) {}

  /// The operator: its options may change from step to step.
  Op& op() { return attention_.op; }
  const HeadSizes& sizes() const { return sizes_; }

  template <class F>
  void visit(F&& f) {
    projection_.visit(f);
    attention_.visit(f);
    out_.visit(f);
  }

  using LayerCalls<MultiHead<Op, T>, T, Tokens<T>>::forward;
  /// \throws std::invalid_argument as the operator, and naming tensor, dimension, expected and got;
  /// std::bad_alloc
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("MultiHead", tokens.x, sizes_.width, y, sizes_.width);
    check_lengths("MultiHead", tokens);
    const View<T> projected = saved.projected.resize(y.batch(), y.rows(), columns());
    projection_.forward(tokens.x, projected, executor);
    const View<const T> from(projected);
    out_.forward(attention_.forward(parts(from), tokens, saved.heads, executor), y, executor);
  }

  /// Adds to the gradients of the parameters; writes d_x if it is given.
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward("MultiHead", tokens.x, sizes_.width, d_y, sizes_.width, d_x);
    check_saved("MultiHead", saved.projected.view(), tokens.x);
    const View<const T> projected(saved.projected.view());
    const View<T> d_projected = saved.d_projected.resize(d_y.batch(), d_y.rows(), columns());
    const View<T> d_heads = attention_.d_out(saved.heads);
    typename Linear<T>::Saved nothing;
    out_.backward(saved.heads.out.view(), nothing, d_y, d_heads, executor);
    attention_.backward(parts(projected), tokens, saved.heads, parts(d_projected), executor);
    projection_.backward(tokens.x, nothing, d_projected, d_x, executor);
    attention_.finish(tokens, saved.heads, d_x, executor);
  }

 private:
  Index columns() const { return (sizes_.heads + 2 * sizes_.key_heads) * sizes_.head_width; }

  /// q, k and v of the projected matrix.
  template <class U>
  std::array<View<U>, 3> parts(const View<U>& projected) const {
    const Index heads = sizes_.heads;
    const Index key_heads = sizes_.key_heads;
    const Index head_width = sizes_.head_width;
    return {as_heads(projected, 0, heads, head_width),
            as_heads(projected, heads * head_width, key_heads, head_width),
            as_heads(projected, (heads + key_heads) * head_width, key_heads, head_width)};
  }

  HeadSizes sizes_;
  Linear<T> projection_;
  HeadAttention<Op, T> attention_;
  Linear<T> out_;
};

FOVEA_NAMESPACE_END
