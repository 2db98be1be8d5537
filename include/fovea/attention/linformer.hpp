// SPDX-License-Identifier: MIT
/// \file
/// Linformer attention (Wang et al. 2020; MATHS.md, section 7): softmax attention over P linear
/// combinations of the keys and values.
#pragma once

#include <optional>
#include <string>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/linformer/projection.hpp"
#include "fovea/attention/softmax/dense.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LinformerAttention.
struct LinformerOptions {
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
};

/// Linformer attention: out = softmax(scale q (E k)^T) (F v) for each head (Wang et al. 2020, eq.
/// 7, where E and F are those of its layer), for float and double. E and F are inputs with
/// gradients, one for all heads or one for each key head. Every query sees all P projected keys,
/// and P may exceed Nk.
///
/// Rows of k and v from the key length on count as 0: neither they nor the columns of E and F that
/// they meet are read, so they may hold anything, and their gradients are 0. A sequence of no keys
/// gives +0, and its lse is log(P). What is visible and not finite reaches every row of its head by
/// IEEE rules. The bits do not depend on threads, batch, heads or strides.
///
/// A projected key mixes all tokens, so the operator is not causal: a causal option or a decoder
/// does not compile. Packed sequences are refused, since E and F are of one length.
///
/// Errors: `forward` and `backward` throw what `check` and `check_backward` throw, and
/// std::bad_alloc, before anything is written.
///
/// Cost: 2 P (D + Dv) flops for each query, and as many for each key and key head. Memory: O(B Hk P
/// (D + Dv)) for the projected keys and values, and about 0.4 MB for each worker.
class LinformerAttention : public ForwardCalls<LinformerAttention>,
                           public BackwardCalls<LinformerAttention> {
 public:
  /// What the operator reads, for tensors of T.
  template <class T>
  using Inputs = LinformerInputs<T>;
  /// What the forward pass saves.
  template <class T>
  using Saved = LinformerSaved<T>;
  /// The gradients that the backward pass writes, for tensors of T.
  template <class T>
  using Grads = LinformerGrads<T>;
  /// The sizes of a call.
  using Shape = LinformerShape;

  LinformerOptions options;  ///< checked at every call

  /// Holds these options. They are checked when the operator is called.
  explicit LinformerAttention(const LinformerOptions& chosen = {}) : options(chosen) {}

  /// The name that stands in error messages, tables and benchmarks.
  static constexpr const char* name() { return "LinformerAttention"; }

  /// Checks what `forward` takes. Cost: O(1), and O(B) for key lengths.
  /// \throws std::invalid_argument, whose message names the operator, the tensor, the dimension,
  /// what was expected and what was given
  template <class T>
  void check(const InputsOf<LinformerAttention, T>& inputs, const View<T>& out,
             const SavedOf<LinformerAttention, T>& saved = {}) const {
    check_read(inputs);
    check_outputs(name(), inputs, out, saved);
    const LinformerShape s = shape_of(inputs);
    if (!saved.projected_keys.is_none()) {
      check_output(name(), "projected_keys", saved.projected_keys, inputs, s.key_shape());
      detail::check_apart(name(), "projected_keys", saved.projected_keys, "out", out);
      detail::check_apart(name(), "projected_keys", saved.projected_keys, "lse", saved.lse);
    }
    if (saved.projected_values.is_none()) return;
    check_output(name(), "projected_values", saved.projected_values, inputs, s.value_shape());
    detail::check_apart(name(), "projected_values", saved.projected_values, "out", out);
    detail::check_apart(name(), "projected_values", saved.projected_values, "lse", saved.lse);
    detail::check_apart(name(), "projected_values", saved.projected_values, "projected_keys",
                        saved.projected_keys);
  }

  /// \throws std::invalid_argument as `check` does, for everything that `backward` takes
  template <class T>
  void check_backward(const InputsOf<LinformerAttention, T>& inputs, const View<const T>& out,
                      const SavedOf<LinformerAttention, T>& saved, const View<const T>& d_out,
                      const GradsOf<LinformerAttention, T>& grads) const {
    check_read(inputs);
    check_rows(name(), "out", inputs, out);
    check_rows(name(), "d_out", inputs, d_out);
    check_lse(name(), inputs, saved);
    const LinformerShape s = shape_of(inputs);
    if (saved.has_projected()) {
      detail::check_made_shape(name(), "projected_keys", saved.projected_keys.shape(),
                               s.key_shape());
      detail::check_made_shape(name(), "projected_values", saved.projected_values.shape(),
                               s.value_shape());
    }
    check_grads(name(), inputs, out, saved, d_out, grads);
  }

  /// Bytes of scratch memory that `forward` takes with that many workers.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const LinformerShape& s, Index workers = 1) const {
    return projected_bytes<T>(s) + projection_bytes<T>(s, workers) +
           DenseForward<T>::workspace_bytes(projected_shape(s), workers);
  }

  /// Bytes of scratch memory that `backward` takes with that many workers, if the projected keys
  /// and values were not saved; see also SoftmaxOperator::backward_workspace_bytes.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const LinformerShape& s, Index workers = 1) const {
    return 2 * projected_bytes<T>(s) + projection_bytes<T>(s, workers) +
           DenseBackward<T>::workspace_bytes(projected_shape(s), workers);
  }

  /// The number of pairs of a query of one head and a projected key.
  [[nodiscard]] Index visible_pairs(const LinformerShape& s, Index /*head*/ = 0) const {
    return add_pairs(0, s.queries, s.projected_keys);
  }

  /// There is no decoder: a call does not compile, and says why.
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "LinformerAttention has no decoder: it is not causal, since every projected key "
                  "mixes all tokens");
  }

 private:
  friend class ForwardCalls<LinformerAttention>;
  friend class BackwardCalls<LinformerAttention>;

  using Extents = fovea::Shape;

  static AttentionShape projected_shape(const LinformerShape& s) {
    AttentionShape shape = s;
    shape.keys = s.projected_keys;
    return shape;
  }

  template <class T>
  static Index projected_bytes(const LinformerShape& s) {
    return ScratchTensor<T>::bytes(s.key_shape()) + ScratchTensor<T>::bytes(s.value_shape());
  }
  template <class T>
  static Index projection_bytes(const LinformerShape& s, Index workers) {
    return workers * LinformerProjection<T>::scratch_elements(s) * Index{sizeof(T)};
  }

  /// The multiply-adds of a forward pass.
  static double products(const LinformerShape& s) {
    const auto rows = static_cast<double>(s.batch * s.query_heads * s.queries) +
                      static_cast<double>(s.batch * s.key_heads * s.keys);
    return rows * static_cast<double>(s.projected_keys) *
           static_cast<double>(s.width + s.value_width);
  }

  /// Checks the options and the inputs.
  template <class T>
  void check_read(const LinformerInputs<T>& inputs) const {
    detail::check_scale<T>(name(), "scale", options.scale);
    check_inputs(name(), inputs);
    if (!inputs.cu_seqlens_q.empty() || !inputs.cu_seqlens_k.empty()) {
      refuse_given(name(), "cu_seqlens", "the projections have a fixed length");
    }
    const Extents& e = inputs.key_projection.shape();
    check_projection(inputs, "key_projection", inputs.key_projection, e[2]);
    check_projection(inputs, "value_projection", inputs.value_projection, e[2]);
  }

  template <class T>
  static void check_projection(const LinformerInputs<T>& inputs, const char* tensor,
                               const View<const T>& x, Index rows) {
    const Extents& s = x.shape();
    if (x.is_none()) {
      if (inputs.q.batch() * inputs.k.heads() == 0) return;
      refuse_missing(name(), tensor, "[1, 1 or Hk, P, Nk], which makes P rows from Nk");
    }
    const Index heads = inputs.k.heads();
    detail::check_extent(name(), tensor, s, 0, 1, "since all sequences share it");
    if (s[1] != 1 && s[1] != heads) {
      refuse_extent(name(), tensor, s, 1, "1 or " + std::to_string(heads) + ", the heads of k");
    }
    if (s[2] < 1) refuse_extent(name(), tensor, s, 2, "at least 1, the projected keys");
    detail::check_extent(name(), tensor, s, 2, rows, "the rows of key_projection");
    detail::check_extent(name(), tensor, s, 3, inputs.k.rows(), "the rows of k");
  }

  template <class T>
  static void copy(const View<const T>& from, const View<T>& to) {
    for (Index b = 0; b < to.batch(); ++b) {
      for (Index h = 0; h < to.heads(); ++h) {
        for (Index n = 0; n < to.rows(); ++n) {
          for (Index d = 0; d < to.width(); ++d) to(b, h, n, d) = from(b, h, n, d);
        }
      }
    }
  }

  template <class T>
  void run(const LinformerInputs<T>& inputs, const View<T>& out, const LinformerSaved<T>& saved,
           const ExecutorRef& executor) const {
    const LinformerShape s = shape_of(inputs);
    auto&& threads = for_work(executor, [&] { return products(s); });
    auto&& memory = memory_of(threads);
    ScratchTensor<T> keys(s.key_shape(), memory);
    ScratchTensor<T> values(s.value_shape(), memory);
    const LinformerProjection<T> projection(s, inputs.key_lengths);
    Workspace scratch =
        memory.take(1, projection_bytes<T>(s, worker_count(threads, projection.most_tasks())));
    DenseForward<T> attention({.q = inputs.q, .k = keys.view(), .v = values.view()},
                              detail::logit_scale<T>(options.scale, s.width), out, saved.lse);
    attention.reserve(threads);
    projection.project({LinformerProduct<T>{inputs.key_projection, inputs.k, keys.view(), {}},
                        LinformerProduct<T>{inputs.value_projection, inputs.v, values.view(), {}}},
                       scratch.template data<T>(), threads);
    attention.compute(threads);
    copy<T>(keys.view(), saved.projected_keys);
    copy<T>(values.view(), saved.projected_values);
  }

  /// Writes the gradients of the loss, of which d_out is the gradient with respect to out: the
  /// exact derivatives of `forward`, and 0 for rows of k and v, and columns of E and F, that no
  /// sequence has. Those of E and F are sums over the batch and the heads that share them, in this
  /// order.
  /// Cost: 2.25 times the flops of the forward pass, and half of its flops more if the projected
  /// keys and values were not saved. Memory: twice that of the forward pass.
  template <class T>
  void run_backward(const LinformerInputs<T>& inputs, const View<const T>& out,
                    const LinformerSaved<T>& saved, const View<const T>& d_out,
                    const LinformerGrads<T>& grads, const ExecutorRef& executor) const {
    const LinformerShape s = shape_of(inputs);
    auto&& threads = for_work(executor, [&] { return 2.5 * products(s); });
    auto&& memory = memory_of(threads);
    const bool projects = !saved.has_projected();
    ScratchTensor<T> own_keys(projects ? s.key_shape() : Extents{}, memory);
    ScratchTensor<T> own_values(projects ? s.value_shape() : Extents{}, memory);
    ScratchTensor<T> d_keys(s.key_shape(), memory);
    ScratchTensor<T> d_values(s.value_shape(), memory);
    const LinformerProjection<T> projection(s, inputs.key_lengths);
    Workspace scratch =
        memory.take(1, projection_bytes<T>(s, worker_count(threads, projection.most_tasks())));
    const View<T> keys = projects ? own_keys.view() : View<T>(saved.projected_keys);
    const View<T> values = projects ? own_values.view() : View<T>(saved.projected_values);
    DenseBackward<T> attention({.q = inputs.q, .k = keys, .v = values},
                               detail::logit_scale<T>(options.scale, s.width), out, saved.lse,
                               d_out, {grads.q, d_keys.view(), d_values.view()});
    attention.take_scratch(threads);
    attention.look_at_lse(threads);
    const std::array<LinformerProduct<T>, 2> both = {
        LinformerProduct<T>{inputs.key_projection, inputs.k, own_keys.view(), d_keys.view(),
                            grads.key_projection, grads.k},
        LinformerProduct<T>{inputs.value_projection, inputs.v, own_values.view(), d_values.view(),
                            grads.value_projection, grads.v}};
    if (projects) projection.project(both, scratch.template data<T>(), threads);
    attention.compute(threads);
    projection.backward(both, scratch.template data<T>(), threads);
  }
};

FOVEA_NAMESPACE_END
