// SPDX-License-Identifier: MIT
/// \file
/// Attention whose keys and values are the pooled hidden state cross (FSAT, eqs. 1-6; MATHS.md,
/// section 6): what FsatLayer and FatLayer share. Needs FFTW. Cost: O(L log L) for each channel,
/// the operator, and 2 Dm (2 Dm + 4 H D) flops per token, twice that in the backward pass.
#pragma once

#include "fovea/layers/head_attention.hpp"
#include "fovea/layers/hidden_map.hpp"
#include "fovea/layers/layer_norm.hpp"
#include "fovea/layers/multi_head.hpp"
#include "fovea/spectral/hidden_state_cross.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options that FsatLayer and FatLayer have.
struct HiddenCrossOptions {
  Index width = 0;       ///< Dm, of x, y and the cross
  Index heads = 1;       ///< H
  Index head_width = 0;  ///< D; 0: width / heads
  bool bias = false;     ///< of W_Q, W_K, W_V and W_O
  HiddenMapKind map = HiddenMapKind::fully_connected;
  FftPlanning planning = FftPlanning::estimate;
};

/// C = LayerNorm(cross(f1(x), f2(x))), Q = x W_Q, K = C W_K, V = C W_V, y = concat_h(Op(Q^h, K^h,
/// V^h)) W_O, for x and y [B, 1, L, Dm] with dense rows. W_K and W_V stand side by side in one
/// matrix. `G` is the operator's LearnedInputs, made of C. Not causal: row i of C mixes tokens up
/// to 2 i
/// + 1. A sequence of a key length gives the rows of the shorter sequence; the rows behind it are
/// what W_O makes of the operator's rows there. Memory kept: 5 Dm + 4 H D numbers per token (with a
/// convolution 2 Dm more), about as many for gradients, and the operator's. The bits are the same
/// for any number of threads.
template <class Op, class T, class G = LearnedInputs<Op, T>>
class HiddenCrossLayer : public LayerCalls<HiddenCrossLayer<Op, T, G>, T, Tokens<T>> {
 public:
  struct Saved {
    typename HiddenMap<T>::Saved map1;
    typename HiddenMap<T>::Saved map2;
    typename LayerNorm<T>::Saved norm;
    typename HeadAttention<Op, T, G>::Saved heads;
    Buffer<T> f1;  ///< [B, 1, L, Dm], as those up to hidden
    Buffer<T> f2;
    Buffer<T> cross;   ///< before it is normalised
    Buffer<T> hidden;  ///< C
    Buffer<T> q;       ///< [B, 1, L, H D]
    Buffer<T> kv;      ///< [B, 1, L, 2 H D]
    Buffer<T> d_f1;
    Buffer<T> d_f2;
    Buffer<T> d_hidden;
    Buffer<T> d_q;
    Buffer<T> d_kv;
  };

  HiddenCrossLayer() = default;

  /// \param dominant M, for an operator that has indices predicted
  /// \throws std::invalid_argument sizes that do not go together
  HiddenCrossLayer(const char* name, const Op& op, const HiddenCrossOptions& options,
                   Index dominant, Initialiser& initialiser)
      : name_(name),
        sizes_(sizes_of(name, options, dominant)),
        map1_(sizes_.width, sizes_.width, initialiser, {.kind = options.map, .name = "f1"}),
        map2_(sizes_.width, sizes_.width, initialiser, {.kind = options.map, .name = "f2"}),
        cross_({.planning = options.planning}),
        norm_(sizes_.width, {.name = "cross_norm"}),
        q_(sizes_.width, columns(), initialiser,
           {.bias = options.bias, .outputs_of_one = sizes_.width, .name = "q"}),
        kv_(sizes_.width, 2 * columns(), initialiser,
            {.bias = options.bias, .outputs_of_one = sizes_.width, .name = "kv"}),
        attention_(op, sizes_, initialiser),
        out_(columns(), sizes_.width, initialiser, {.bias = options.bias, .name = "out"}) {}

  /// The operator: its options may change from step to step.
  Op& op() { return attention_.op; }
  /// The operator's learned inputs.
  G& learned_inputs() { return attention_.learned; }
  const HeadSizes& sizes() const { return sizes_; }

  template <class F>
  void visit(F&& f) {
    map1_.visit(f);
    map2_.visit(f);
    norm_.visit(f);
    q_.visit(f);
    kv_.visit(f);
    attention_.visit(f);
    out_.visit(f);
  }

  using LayerCalls<HiddenCrossLayer<Op, T, G>, T, Tokens<T>>::forward;
  /// \throws std::invalid_argument as the operator, and naming tensor, dimension, expected and got;
  /// std::bad_alloc
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward(name_, tokens.x, sizes_.width, y, sizes_.width);
    check_lengths(name_, tokens);
    const Shape& shape = y.shape();
    const View<T> f1 = saved.f1.resize(shape);
    const View<T> f2 = saved.f2.resize(shape);
    const View<T> crossed = saved.cross.resize(shape);
    const View<T> hidden = saved.hidden.resize(shape);
    map1_.forward(tokens, f1, saved.map1, executor);
    map2_.forward(tokens, f2, saved.map2, executor);
    cross_.forward(CrossInputs<T>{f1, f2, tokens.key_lengths}, crossed, executor);
    norm_.forward(crossed, hidden, saved.norm, executor);
    q_.forward(tokens.x, saved.q.resize(shape[0], shape[2], columns()), executor);
    kv_.forward(hidden, saved.kv.resize(shape[0], shape[2], 2 * columns()), executor);
    const auto qkv = parts<const T>(saved.q.view(), saved.kv.view());
    const View<const T> out = attention_.forward(qkv, tokens.with(hidden), saved.heads, executor);
    out_.forward(out, y, executor);
  }

  /// Adds to the gradients of the parameters; writes d_x if it is given.
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward(name_, tokens.x, sizes_.width, d_y, sizes_.width, d_x);
    check_lengths(name_, tokens);
    check_saved(name_, saved.hidden.view(), tokens.x);
    const View<T> d_hidden = saved.d_hidden.resize(d_y.shape());
    backward_to_cross(tokens, saved, d_y, d_x, executor);
    norm_.backward(saved.cross.view(), saved.norm, d_hidden, d_hidden, executor);
    const View<T> d_f1 = saved.d_f1.resize(d_y.shape());
    const View<T> d_f2 = saved.d_f2.resize(d_y.shape());
    const CrossInputs<T> inputs{saved.f1.view(), saved.f2.view(), tokens.key_lengths};
    cross_.backward(inputs, d_hidden, CrossGrads<T>{d_f1, d_f2}, executor);
    map1_.backward(tokens, saved.map1, d_f1, d_x, executor, Into::add);
    map2_.backward(tokens, saved.map2, d_f2, d_x, executor, Into::add);
  }

 private:
  static HeadSizes sizes_of(const char* name, const HiddenCrossOptions& options, Index dominant) {
    HeadSizes sizes = head_sizes(
        name, {.width = options.width, .heads = options.heads, .head_width = options.head_width});
    sizes.dominant = dominant;
    return sizes;
  }

  Index columns() const { return sizes_.heads * sizes_.head_width; }

  /// q, k and v as the operator reads them, or their gradients.
  template <class U>
  std::array<View<U>, 3> parts(const View<U>& q, const View<U>& kv) const {
    return {as_heads(q, 0, sizes_.heads, sizes_.head_width),
            as_heads(kv, 0, sizes_.heads, sizes_.head_width),
            as_heads(kv, columns(), sizes_.heads, sizes_.head_width)};
  }

  /// From d_y to d_hidden, and to the part of d_x that comes by the queries, which is written.
  template <class E>
  void backward_to_cross(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y,
                         const View<T>& d_x, E&& executor) {
    const Tokens<T> source = tokens.with(saved.hidden.view());
    const View<T> d_hidden = saved.d_hidden.view();
    const View<T> d_q = saved.d_q.resize(saved.q.view().shape());
    const View<T> d_kv = saved.d_kv.resize(saved.kv.view().shape());
    typename Linear<T>::Saved nothing;
    out_.backward(saved.heads.out.view(), nothing, d_y, attention_.d_out(saved.heads), executor);
    attention_.backward(parts<const T>(saved.q.view(), saved.kv.view()), source, saved.heads,
                        parts<T>(d_q, d_kv), executor);
    kv_.backward(source.x, nothing, d_kv, d_hidden, executor);
    attention_.finish(source, saved.heads, d_hidden, executor);
    q_.backward(tokens.x, nothing, d_q, d_x, executor);
  }

  const char* name_ = "HiddenCrossLayer";
  HeadSizes sizes_;
  HiddenMap<T> map1_;
  HiddenMap<T> map2_;
  HiddenStateCross cross_;
  LayerNorm<T> norm_;
  Linear<T> q_;
  Linear<T> kv_;
  HeadAttention<Op, T, G> attention_;
  Linear<T> out_;
};

FOVEA_NAMESPACE_END
