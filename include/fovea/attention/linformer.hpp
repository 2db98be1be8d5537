// SPDX-License-Identifier: MIT
/// \file
/// Linformer attention (Wang et al. 2020; MATHS.md, section 7): softmax attention over P linear
/// combinations of the keys and values.
#pragma once

#include <optional>
#include <string_view>

#include "fovea/attention/call/checked_calls.hpp"
#include "fovea/attention/linformer/tensors.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/pattern.hpp"

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
/// Rows of k and v from the key length on count as 0: neither they nor the corresponding columns of
/// E and F are read, so they may contain anything, and their gradients are 0. A sequence without
/// keys gives +0, and its lse is log(P). NaN and infinities in visible rows reach every row of the
/// head by IEEE rules. The bits do not depend on threads, batch, heads or strides.
///
/// A projected key depends on all tokens, so the operator is not causal: a causal option or a
/// decoder is a compile error. Packed sequences are refused, since E and F have one length.
///
/// Errors: `forward` and `backward` throw what `check` and `check_backward` throw, and
/// std::bad_alloc, before anything is written.
///
/// Cost: 2 P (D + Dv) flops for each query, and as many for each key and key head. Memory: O(B Hk P
/// (D + Dv)) for the projected keys and values, and about 0.4 MB for each worker.
class LinformerAttention : public CheckedCalls<LinformerAttention>,
                           public OperatorTypes<LinformerInputs, LinformerSaved, LinformerGrads,
                                                LinformerShape, LinformerOptions> {
 public:
  using OperatorTypes::OperatorTypes;

  /// The operator's name.
  static constexpr const char* name() { return "LinformerAttention"; }

  /// The number of pairs of a query and a projected key in one head.
  [[nodiscard]] Index attended_pairs(const LinformerShape& s, Index /*head*/ = 0) const {
    return add_pairs(0, s.queries, s.projected_keys);
  }

  /// There is no decoder; calling this is a compile error.
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "LinformerAttention has no decoder: it is not causal, since every projected key "
                  "mixes all tokens");
  }

 private:
  friend class ForwardCalls<LinformerAttention>;
  friend class BackwardCalls<LinformerAttention>;
  friend class CheckedCalls<LinformerAttention>;

  using Extents = fovea::Shape;

  /// The multiply-adds of a forward pass.
  static double products(const LinformerShape& s) {
    const auto rows = static_cast<double>(s.batch * s.query_heads * s.queries) +
                      static_cast<double>(s.batch * s.key_heads * s.keys);
    return rows * static_cast<double>(s.projected_keys) *
           static_cast<double>(s.width + s.value_width);
  }

  /// Checks the options and the inputs.
  template <class T>
  void check_read(const LinformerInputs<T>& inputs) const;
  template <class T>
  static Extents saved_shape(const LinformerInputs<T>& inputs, std::string_view tensor);

  template <class T>
  static void check_projection(const LinformerInputs<T>& inputs, const char* tensor,
                               const View<const T>& x, Index rows);

  template <class T>
  void run(const LinformerInputs<T>& inputs, const View<T>& out, const LinformerSaved<T>& saved,
           const ExecutorRef& executor) const;

  /// Writes the gradients of the loss, given d_out, its gradient with respect to out: the exact
  /// derivatives of `forward`, and 0 for rows of k and v, and columns of E and F, beyond all key
  /// lengths. The gradients of E and F are sums over the batch and over the heads that share them,
  /// in this order. Cost: 2.25 times the flops of the forward pass; 2.75 times if the projected
  /// keys and values were not saved. Memory: twice that of the forward pass.
  template <class T>
  void run_backward(const LinformerInputs<T>& inputs, const View<const T>& out,
                    const LinformerSaved<T>& saved, const View<const T>& d_out,
                    const LinformerGrads<T>& grads, const ExecutorRef& executor) const;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/linformer.inl.hpp"
#endif
