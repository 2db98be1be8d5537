// SPDX-License-Identifier: MIT
/// \file
/// The Luna layer (Ma et al. 2021, section 3): Luna attention between its projections. Besides the
/// tokens, its input is a packed sequence of a few rows, and it outputs another one for the next
/// layer.
#pragma once

#include "fovea/attention/luna.hpp"
#include "fovea/core/members.hpp"
#include "fovea/layers/attend.hpp"
#include "fovea/layers/elementwise.hpp"
#include "fovea/layers/linear.hpp"
#include "fovea/layers/multi_head.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LunaLayer.
struct LunaLayerOptions {
  Index width = 0;             ///< Dm, the channels of x, p and the outputs; must be set
  Index heads = 1;             ///< H, the number of query heads, which divides width
  Index key_heads = 0;         ///< Hk, the number of key heads, which divides heads; if 0, heads
  bool bias = false;           ///< whether the projections have a bias
  LunaOptions attention = {};  ///< options of LunaAttention
};

/// The inputs of a Luna layer.
template <class T>
struct LunaTokens {
  ViewMember<const T> x = {};       ///< [B, 1, L, Dm] the channels of the tokens
  ViewMember<const T> packed = {};  ///< [B, 1, P, Dm] p, the packed sequence
  /// [B] the number of tokens of each sequence; if empty, all have L.
  IndexSpan key_lengths = {};
};

/// The two results of a Luna layer, or their gradients.
template <class T>
struct LunaOutputs {
  ViewMember<T> x = {};       ///< [B, 1, L, Dm] Yx
  ViewMember<T> packed = {};  ///< [B, 1, P, Dm] Yp, the packed sequence for the next layer
};

/// Yp = Attn(p W_pq, x W_pk, x W_pv) and Yx = Attn(x W_q, Yp W_k, Yp W_v), where heads are
/// concatenated and have width Dm / H, for activations with dense rows. W_pk and W_pv are
/// concatenated in one matrix, and so are W_k and W_v. Tokens beyond a key length are not attended
/// to, but their rows of Yx are written.
///
/// Cost: 2 Dm (2 H + 2 Hk) Dm / H flops for each token, as many for each packed row, and those of
/// LunaAttention; twice that in the backward pass. The layer saves (H + 2 Hk) D + Dm numbers for
/// each token and each packed row, and uses as many for gradients. The bits are the same for any
/// number of threads.
///
/// In distributed calls, all ranks have the same p and, if it is given, the same gradient of Yp,
/// and get the same Yp and gradient of p: all compute the packed rows.
template <class T = float>
class LunaLayer : public LayerParts<LunaLayer<T>> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    Buffer<T> pack_q;      ///< [B, 1, P, H D] p W_pq
    Buffer<T> pack_kv;     ///< [B, 1, L, 2 Hk D] x W_pk and x W_pv
    Buffer<T> pack_out;    ///< [B, 1, P, Dm] Yp
    Buffer<T> pack_lse;    ///< [B, H, P, 1]
    Buffer<T> q;           ///< [B, 1, L, H D] x W_q
    Buffer<T> kv;          ///< [B, 1, P, 2 Hk D] Yp W_k and Yp W_v
    Buffer<T> out;         ///< [B, 1, L, Dm] Yx
    Buffer<T> lse;         ///< [B, H, L, 1]
    Buffer<T> d_pack_q;    ///< the gradient of pack_q
    Buffer<T> d_pack_kv;   ///< the gradient of pack_kv
    Buffer<T> d_pack_out;  ///< the gradient of Yp, as an output and as keys and values
    Buffer<T> d_q;         ///< the gradient of q
    Buffer<T> d_kv;        ///< the gradient of kv
  };

  /// An empty layer; assign one before use.
  LunaLayer() = default;

  /// Draws the weights. \throws std::invalid_argument if sizes are inconsistent
  LunaLayer(const LunaLayerOptions& options, Initialiser& initialiser)
      : op_(options.attention),
        sizes_(head_sizes(
            kName,
            {.width = options.width, .heads = options.heads, .key_heads = options.key_heads})),
        pack_q_(width(), width(), initialiser, {.bias = options.bias, .name = "pack_q"}),
        pack_kv_(width(), 2 * key_columns(), initialiser,
                 {.bias = options.bias, .outputs_of_one = width(), .name = "pack_kv"}),
        q_(width(), width(), initialiser, {.bias = options.bias, .name = "q"}),
        kv_(width(), 2 * key_columns(), initialiser,
            {.bias = options.bias, .outputs_of_one = width(), .name = "kv"}) {}

  /// The operator; its options may change between steps.
  LunaAttention& op() { return op_; }
  /// The operator.
  const LunaAttention& op() const { return op_; }
  /// The sizes of the heads.
  const HeadSizes& sizes() const { return sizes_; }

  /// Lists the projections.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.pack_q_);
    f(self.pack_kv_);
    f(self.q_);
    f(self.kv_);
  }

  /// Computes Yx and Yp, and saves nothing. \throws as the other `forward`
  template <class E = Serial>
  requires(!std::same_as<std::remove_cvref_t<E>, Saved>) void forward(const LunaTokens<T>& tokens,
                                                                      const LunaOutputs<T>& y,
                                                                      E&& executor = {}) const {
    Saved saved;
    forward(tokens, y, saved, executor);
  }

  /// Computes Yx and Yp, and saves what `backward` needs.
  /// \param y both are written
  /// \throws std::invalid_argument if a shape or layout is wrong
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const LunaTokens<T>& tokens, const LunaOutputs<T>& y, Saved& saved,
               E&& executor = {}) const {
    check_tokens(tokens, detail::rows_of_sequence(tokens.x, executor));
    check_outputs(tokens, y);
    auto& of_packed = detail::executor_of_one(executor);
    const Index batch = tokens.x.batch();
    const Index rows = tokens.x.rows();
    const Index packed_rows = tokens.packed.rows();
    pack_q_.forward(tokens.packed, saved.pack_q.resize(batch, packed_rows, width()), of_packed);
    pack_kv_.forward(tokens.x, saved.pack_kv.resize(batch, rows, 2 * key_columns()), executor);
    const View<T> packed = saved.pack_out.resize(batch, packed_rows, width());
    saved.pack_lse.resize({batch, sizes_.heads, packed_rows, 1});
    detail::attend<LunaPack, T>(op_.pack(), pack_inputs(tokens, saved), heads_of(packed),
                                SoftmaxSaved<T>{saved.pack_lse.view()}, executor);
    q_.forward(tokens.x, saved.q.resize(batch, rows, width()), executor);
    kv_.forward(View<const T>(packed), saved.kv.resize(batch, packed_rows, 2 * key_columns()),
                of_packed);
    const View<T> out = saved.out.resize(batch, rows, width());
    saved.lse.resize({batch, sizes_.heads, rows, 1});
    detail::attend<LunaUnpack, T>(op_.unpack(), unpack_inputs(saved), heads_of(out),
                                  SoftmaxSaved<T>{saved.lse.view()}, executor);
    copy(View<const T>(out), y.x);
    copy(View<const T>(packed), y.packed);
  }

  /// Adds to the gradients of the parameters, and writes the requested gradients of x and p.
  /// \param d_y the gradients of the loss with respect to Yx and Yp; that of Yp may be empty, as in
  /// the last layer
  /// \param d_tokens the gradients of x and p; either may be empty
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const LunaTokens<T>& tokens, Saved& saved, const LunaOutputs<const T>& d_y,
                const LunaOutputs<T>& d_tokens, E&& executor = {}) {
    check_tokens(tokens, detail::rows_of_sequence(tokens.x, executor));
    check_gradients(tokens, d_y, d_tokens);
    check_saved(kName, saved.q.view(), tokens.x, width());
    check_saved(kName, saved.pack_q.view(), tokens.packed, width());
    const auto like = [](Buffer<T>& gradient, const Buffer<T>& of) {
      return gradient.resize(of.view().shape());
    };
    const View<T> d_q = like(saved.d_q, saved.q);
    const View<T> d_kv = like(saved.d_kv, saved.kv);
    const View<T> d_pack_q = like(saved.d_pack_q, saved.pack_q);
    const View<T> d_pack_kv = like(saved.d_pack_kv, saved.pack_kv);
    const View<T> d_packed = like(saved.d_pack_out, saved.pack_out);
    const View<const T> packed = saved.pack_out.view();
    typename Linear<T>::Saved nothing;
    auto& of_packed = detail::executor_of_one(executor);
    detail::attend_backward<LunaUnpack, T>(
        op_.unpack(), unpack_inputs(saved), heads_of(saved.out.view()),
        SoftmaxSaved<T>{saved.lse.view()}, as_heads(d_y.x, 0, sizes_.heads, sizes_.head_width),
        grads(d_q, d_kv), executor);
    kv_.backward(packed, nothing, View<const T>(d_kv), d_packed, of_packed);
    if (!d_y.packed.empty()) add(d_y.packed, d_packed);
    detail::attend_backward<LunaPack, T>(op_.pack(), pack_inputs(tokens, saved),
                                         heads_of(saved.pack_out.view()),
                                         SoftmaxSaved<T>{saved.pack_lse.view()}, heads_of(d_packed),
                                         grads(d_pack_q, d_pack_kv), executor);
    pack_q_.backward(tokens.packed, nothing, View<const T>(d_pack_q), d_tokens.packed, of_packed);
    pack_kv_.backward(tokens.x, nothing, View<const T>(d_pack_kv), d_tokens.x, executor);
    q_.backward(tokens.x, nothing, View<const T>(d_q), d_tokens.x, executor, OutputMode::add);
  }

 private:
  static constexpr const char* kName = "LunaLayer";

  Index width() const { return sizes_.width; }
  Index key_columns() const { return sizes_.key_heads * sizes_.head_width; }

  View<T> heads_of(const View<T>& x) const {
    return as_heads(x, 0, sizes_.heads, sizes_.head_width);
  }
  View<T> keys_of(const View<T>& kv) const {
    return as_heads(kv, 0, sizes_.key_heads, sizes_.head_width);
  }
  View<T> values_of(const View<T>& kv) const {
    return as_heads(kv, key_columns(), sizes_.key_heads, sizes_.head_width);
  }

  SoftmaxInputs<T> pack_inputs(const LunaTokens<T>& tokens, Saved& saved) const {
    SoftmaxInputs<T> inputs;
    inputs.q = heads_of(saved.pack_q.view());
    inputs.k = keys_of(saved.pack_kv.view());
    inputs.v = values_of(saved.pack_kv.view());
    inputs.key_lengths = tokens.key_lengths;
    return inputs;
  }
  SoftmaxInputs<T> unpack_inputs(Saved& saved) const {
    SoftmaxInputs<T> inputs;
    inputs.q = heads_of(saved.q.view());
    inputs.k = keys_of(saved.kv.view());
    inputs.v = values_of(saved.kv.view());
    return inputs;
  }
  SoftmaxGrads<T> grads(const View<T>& d_q, const View<T>& d_kv) const {
    SoftmaxGrads<T> to;
    to.q = heads_of(d_q);
    to.k = keys_of(d_kv);
    to.v = values_of(d_kv);
    return to;
  }

  static void copy(const View<const T>& from, const View<T>& to) {
    for (Index b = 0; b < to.batch(); ++b) detail::rows_of(to, b) = detail::rows_of(from, b);
  }
  static void add(const View<const T>& from, const View<T>& to) {
    for (Index b = 0; b < to.batch(); ++b) detail::rows_of(to, b) += detail::rows_of(from, b);
  }

  /// \param rows of the sequence, of which x may be a part
  void check_tokens(const LunaTokens<T>& tokens, Index rows) const {
    check_activations(kName, "x", tokens.x, width());
    check_activations(kName, "packed", tokens.packed, width());
    detail::check_extent(kName, "packed", tokens.packed.shape(), 0, tokens.x.batch(),
                         "the batch of x");
    detail::check_key_lengths(kName, tokens.key_lengths, tokens.x.batch(), "x", rows, "x");
  }
  void check_written_apart(const LunaTokens<T>& tokens, const char* tensor,
                           const View<T>& y) const {
    check_written(kName, tensor, y, "x", tokens.x);
    detail::check_apart(kName, tensor, y, "packed", tokens.packed);
  }
  void check_outputs(const LunaTokens<T>& tokens, const LunaOutputs<T>& y) const {
    check_alike(kName, "y", y.x, width(), tokens.x);
    check_written_apart(tokens, "y", y.x);
    check_alike(kName, "y_packed", y.packed, width(), tokens.packed);
    check_written_apart(tokens, "y_packed", y.packed);
    detail::check_apart(kName, "y_packed", y.packed, "y", y.x);
  }
  void check_gradients(const LunaTokens<T>& tokens, const LunaOutputs<const T>& d_y,
                       const LunaOutputs<T>& d_tokens) const {
    check_alike(kName, "d_y", d_y.x, width(), tokens.x);
    if (!d_y.packed.empty()) {
      check_alike(kName, "d_y_packed", d_y.packed, width(), tokens.packed);
    }
    const auto check = [&](const char* tensor, const View<T>& x, const View<const T>& of) {
      if (x.empty()) return;
      check_alike(kName, tensor, x, width(), of);
      check_written_apart(tokens, tensor, x);
      detail::check_apart(kName, tensor, x, "d_y", d_y.x);
      detail::check_apart(kName, tensor, x, "d_y_packed", d_y.packed);
    };
    check("d_x", d_tokens.x, tokens.x);
    check("d_packed", d_tokens.packed, tokens.packed);
    detail::check_apart(kName, "d_packed", d_tokens.packed, "d_x", d_tokens.x);
  }

  LunaAttention op_;
  HeadSizes sizes_;
  Linear<T> pack_q_;
  Linear<T> pack_kv_;
  Linear<T> q_;
  Linear<T> kv_;
};

FOVEA_NAMESPACE_END
