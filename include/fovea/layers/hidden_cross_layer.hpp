// SPDX-License-Identifier: MIT
/// \file
/// Attention whose keys and values are the pooled hidden state cross (FSAT, eqs. 1-6; MATHS.md,
/// section 6): the common base of FsatLayer and FatLayer. Requires FFTW. Besides the operator it
/// costs O(L log L) per channel and 2 Dm (2 Dm + 4 H D) flops per token, twice that in the backward
/// pass.
#pragma once

#include "fovea/layers/attend.hpp"
#include "fovea/layers/head_attention.hpp"
#include "fovea/layers/hidden_map.hpp"
#include "fovea/layers/layer_norm.hpp"
#include "fovea/layers/multi_head.hpp"
#include "fovea/spectral/fft_planning.hpp"
#include "fovea/spectral/hidden_state_cross.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options that FsatLayer and FatLayer have in common.
struct HiddenCrossOptions {
  Index width = 0;       ///< Dm, the channels of x, y and the cross; must be set
  Index heads = 1;       ///< H, the number of heads
  Index head_width = 0;  ///< D, the width of a head; if 0, width / heads
  bool bias = false;     ///< whether W_Q, W_K, W_V and W_O have a bias
  HiddenMapKind map = HiddenMapKind::fully_connected;      ///< the kind of the maps f1 and f2
  ActivationKind activation = ActivationKind::gelu;        ///< the final function of both maps
  ActivationKind inner_activation = ActivationKind::gelu;  ///< the function between two linear maps
  Index map_hidden = 0;                          ///< channels between two linear maps; if 0, width
  FftPlanning planning = FftPlanning::estimate;  ///< how FFTW chooses plans
};

/// For x and y [B, 1, L, Dm] with dense rows it computes
///
///     C = LayerNorm(cross(f1(x), f2(x)))
///     Q = x W_Q,  K = C W_K,  V = C W_V
///     y = concat_h(Op(Q^h, K^h, V^h)) W_O
///
/// W_K and W_V are concatenated in one matrix. `G` is the LearnedInputs of the operator, computed
/// from C. The layer is not causal: row i of C mixes tokens up to 2i + 1. With a key length, the
/// rows before it equal those of the shorter sequence; rows from it on are the operator's rows
/// there, times W_O.
///
/// The layer saves 6 Dm + 4 H D + 2 numbers per token and uses 5 Dm + 4 H D for gradients, each 2
/// Dm more with a convolution or 4 map_hidden more with two linear maps, besides what the operator
/// saves.
template <class Op, class T, class G = LearnedInputs<Op, T>>
class HiddenCrossLayer : public LayerCalls<HiddenCrossLayer<Op, T, G>, T, Tokens<T>> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    typename HiddenMap<T>::Saved map1;              ///< f1's
    typename HiddenMap<T>::Saved map2;              ///< f2's
    typename LayerNorm<T>::Saved norm;              ///< the normalisation's
    typename HeadAttention<Op, T, G>::Saved heads;  ///< the operator's
    Buffer<T> f1;                                   ///< [B, 1, L, Dm], as all up to hidden: f1(x)
    Buffer<T> f2;                                   ///< f2(x)
    Buffer<T> cross;                                ///< the cross before normalisation
    Buffer<T> hidden;                               ///< C
    Buffer<T> q;                                    ///< [B, 1, L, H D] Q, concatenated heads
    Buffer<T> kv;                                   ///< [B, 1, L, 2 H D] K and V, concatenated
    Buffer<T> d_f1;                                 ///< the gradient of f1
    Buffer<T> d_f2;                                 ///< the gradient of f2
    Buffer<T> d_hidden;                             ///< the gradient of hidden, then of cross
    Buffer<T> d_q;                                  ///< the gradient of q
    Buffer<T> d_kv;                                 ///< the gradient of kv
  };

  /// An empty layer; assign one before use.
  HiddenCrossLayer() = default;

  /// \param name the layer's name, for error messages
  /// \param op operator with its options
  /// \param options sizes and maps
  /// \param dominant M, for an operator with predicted indices
  /// \param initialiser draws the weights
  /// \throws std::invalid_argument if sizes are inconsistent
  HiddenCrossLayer(const char* name, const Op& op, const HiddenCrossOptions& options,
                   Index dominant, Initialiser& initialiser)
      : name_(name),
        sizes_(sizes_of(name, options, dominant)),
        map1_(sizes_.width, sizes_.width, initialiser, map_options("f1", options)),
        map2_(sizes_.width, sizes_.width, initialiser, map_options("f2", options)),
        cross_({.planning = options.planning}),
        norm_(sizes_.width, {.name = "cross_norm"}),
        q_(sizes_.width, columns(), initialiser,
           {.bias = options.bias, .outputs_of_one = sizes_.width, .name = "q"}),
        kv_(sizes_.width, 2 * columns(), initialiser,
            {.bias = options.bias, .outputs_of_one = sizes_.width, .name = "kv"}),
        attention_(name, op, sizes_, initialiser),
        out_(columns(), sizes_.width, initialiser, {.bias = options.bias, .name = "out"}) {}

  /// The operator; its options may change between steps.
  Op& op() { return attention_.op; }
  /// The learned inputs of the operator.
  G& learned_inputs() { return attention_.learned; }
  /// The sizes of the heads.
  const HeadSizes& sizes() const { return sizes_; }

  /// Lists all parts.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.map1_);
    f(self.map2_);
    f(self.norm_);
    f(self.q_);
    f(self.kv_);
    f(self.attention_);
    f(self.out_);
  }

  using LayerCalls<HiddenCrossLayer<Op, T, G>, T, Tokens<T>>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument as the operator, or if a shape or layout is wrong
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward(name_, tokens, sizes_.width, y, sizes_.width);
    check_lengths(name_, tokens, detail::rows_of_sequence(tokens.x, executor));
    const Shape& shape = y.shape();
    const View<T> f1 = saved.f1.resize(shape);
    const View<T> f2 = saved.f2.resize(shape);
    const View<T> crossed = saved.cross.resize(shape);
    const View<T> hidden = saved.hidden.resize(shape);
    map1_.forward(tokens, f1, saved.map1, executor);
    map2_.forward(tokens, f2, saved.map2, executor);
    detail::forward_over(cross_, executor, CrossInputs<T>{f1, f2, tokens.key_lengths}, crossed);
    norm_.forward(crossed, hidden, saved.norm, executor);
    q_.forward(tokens.x, saved.q.resize(shape[0], shape[2], columns()), executor);
    kv_.forward(hidden, saved.kv.resize(shape[0], shape[2], 2 * columns()), executor);
    const auto qkv = parts<const T>(saved.q.view(), saved.kv.view());
    const View<const T> out = attention_.forward(qkv, tokens.with(hidden), saved.heads, executor);
    out_.forward(out, y, executor);
  }

  /// Adds to the gradients of the parameters. If given, d_x is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward(name_, tokens, sizes_.width, d_y, sizes_.width, d_x);
    check_lengths(name_, tokens, detail::rows_of_sequence(tokens.x, executor));
    check_saved(name_, saved.hidden.view(), tokens.x, sizes_.width);
    const View<T> d_hidden = saved.d_hidden.resize(d_y.shape());
    backward_to_cross(tokens, saved, d_y, d_x, executor);
    norm_.backward(saved.cross.view(), saved.norm, d_hidden, d_hidden, executor);
    const View<T> d_f1 = saved.d_f1.resize(d_y.shape());
    const View<T> d_f2 = saved.d_f2.resize(d_y.shape());
    const CrossInputs<T> inputs{saved.f1.view(), saved.f2.view(), tokens.key_lengths};
    detail::backward_over(cross_, executor, inputs, View<const T>(d_hidden),
                          CrossGrads<T>{d_f1, d_f2});
    map1_.backward(tokens, saved.map1, d_f1, d_x, executor, OutputMode::add);
    map2_.backward(tokens, saved.map2, d_f2, d_x, executor, OutputMode::add);
  }

 private:
  static HeadSizes sizes_of(const char* name, const HiddenCrossOptions& options, Index dominant) {
    HeadSizes sizes = head_sizes(
        name, {.width = options.width, .heads = options.heads, .head_width = options.head_width});
    sizes.dominant = dominant;
    return sizes;
  }

  static HiddenMapOptions map_options(const char* name, const HiddenCrossOptions& options) {
    return {.kind = options.map,
            .name = name,
            .activation = options.activation,
            .inner_activation = options.inner_activation,
            .hidden = options.map_hidden};
  }

  Index columns() const { return sizes_.heads * sizes_.head_width; }

  /// q, k and v as the operator reads them, or their gradients.
  template <class U>
  std::array<View<U>, 3> parts(const View<U>& q, const View<U>& kv) const {
    return {as_heads(q, 0, sizes_.heads, sizes_.head_width),
            as_heads(kv, 0, sizes_.heads, sizes_.head_width),
            as_heads(kv, columns(), sizes_.heads, sizes_.head_width)};
  }

  /// Computes from d_y the gradient of C, and the queries' contribution to d_x. Both are written.
  template <class E>
  void backward_to_cross(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y,
                         const View<T>& d_x, E&& executor) {
    const Tokens<T> source = tokens.with(saved.hidden.view());
    const View<T> d_hidden = saved.d_hidden.view();
    const View<T> d_q = saved.d_q.resize(saved.q.view().shape());
    const View<T> d_kv = saved.d_kv.resize(saved.kv.view().shape());
    const View<T> d_heads = attention_.d_out(saved.heads);
    const auto qkv = parts<const T>(saved.q.view(), saved.kv.view());
    const auto d_qkv = parts<T>(d_q, d_kv);
    attention_.check_backward(name_, qkv, source, saved.heads, d_qkv, executor);
    typename Linear<T>::Saved nothing;
    out_.backward(saved.heads.out.view(), nothing, d_y, d_heads, executor);
    attention_.backward(qkv, source, saved.heads, d_qkv, executor);
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
