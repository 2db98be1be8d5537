// SPDX-License-Identifier: MIT
/// \file
/// Longformer attention (Beltagy et al. 2020, section 3.1; MATHS.md, section 3): a window around
/// each query, and global tokens, which may have separate projections.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "fovea/attention/call/grads.hpp"
#include "fovea/attention/call/inputs.hpp"
#include "fovea/attention/softmax/operator.hpp"
#include "fovea/core/error.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/window_and_tokens.hpp"

FOVEA_NAMESPACE_BEGIN

/// The inputs of Longformer attention; everything but q, k and v is optional.
template <class T>
struct LongformerInputs {
  ViewMember<const T> q = {};                      ///< [B, Hq, Nq, D]
  ViewMember<const T> k = {};                      ///< [B, Hk, Nk, D]
  ViewMember<const T> v = {};                      ///< [B, Hk, Nk, Dv]
  IndexSpan key_lengths = {};                      ///< as in SoftmaxInputs
  IndexSpan cu_seqlens_q = {};                     ///< as in SoftmaxInputs
  IndexSpan cu_seqlens_k = {};                     ///< as in SoftmaxInputs
  IndexSpan first_positions = {};                  ///< as in SoftmaxInputs
  ViewMember<const Compute<T>> bias = {};          ///< as in SoftmaxInputs
  ViewMember<const bool> mask = {};                ///< as in SoftmaxInputs
  SpanMember<const Compute<T>> alibi_slopes = {};  ///< as in SoftmaxInputs
  SpanMember<const Compute<T>> sink = {};          ///< as in SoftmaxInputs
  /// [B, Hq, Nq, D]: replaces q in the rows of global positions; other rows of it are not read.
  /// Give all of global_q, global_k and global_v, or none.
  ViewMember<const T> global_q = {};
  ViewMember<const T> global_k = {};  ///< [B, Hk, Nk, D]: replaces k for those rows
  ViewMember<const T> global_v = {};  ///< [B, Hk, Nk, Dv]: replaces v for those rows

  FOVEA_TENSORS(q, k, v, bias, mask, alibi_slopes, sink, global_q, global_k, global_v)

  /// The shape of a tensor in a call, as detail::shape_in_call.
  template <class S>
  static Shape shape_in_call(const S& s, std::string_view tensor) {
    if (tensor.starts_with("global_")) tensor.remove_prefix(std::string_view("global_").size());
    return detail::shape_in_call(s, tensor);
  }

  /// Whether the rows of global positions have separate projections.
  bool has_global() const { return !global_q.empty() || !global_k.empty() || !global_v.empty(); }

  /// The inputs of all rows if there is one set of projections.
  constexpr SoftmaxInputs<T> shared() const {
    return {q,
            k,
            v,
            key_lengths,
            cu_seqlens_q,
            cu_seqlens_k,
            first_positions,
            bias,
            mask,
            alibi_slopes,
            sink};
  }
  /// The inputs of the rows of global positions.
  SoftmaxInputs<T> global() const {
    SoftmaxInputs<T> made = shared();
    made.q = global_q;
    made.k = global_k;
    made.v = global_v;
    return made;
  }

  /// A decoder's inputs.
  /// \throws std::invalid_argument if global rows have separate projections; decoders have none
  // NOLINTNEXTLINE(google-explicit-constructor): a decoder takes these
  operator SoftmaxInputs<T>() const {
    if (has_global()) {
      refuse_given("LongformerAttention", "global_q", "a decoder keeps one set of keys and values");
    }
    return shared();
  }
};

/// The gradients of Longformer attention. Those of bias and sink are not available if the rows of
/// global positions have separate projections.
template <class T>
struct LongformerGrads {
  ViewMember<T> q = {};         ///< [B, Hq, Nq, D]
  ViewMember<T> k = {};         ///< [B, Hk, Nk, D]
  ViewMember<T> v = {};         ///< [B, Hk, Nk, Dv]
  ViewMember<T> bias = {};      ///< as in SoftmaxGrads
  SpanMember<T> sink = {};      ///< [Hq]
  ViewMember<T> global_q = {};  ///< [B, Hq, Nq, D]: 0 in rows that are not global
  ViewMember<T> global_k = {};  ///< [B, Hk, Nk, D]
  ViewMember<T> global_v = {};  ///< [B, Hk, Nk, Dv]

  /// The gradients of shared().
  constexpr SoftmaxGrads<T> shared() const { return {q, k, v, bias, sink}; }
  /// The gradients of global().
  SoftmaxGrads<T> global() const {
    SoftmaxGrads<T> made;
    made.q = global_q;
    made.k = global_k;
    made.v = global_v;
    return made;
  }

  FOVEA_TENSORS(q, k, v, bias, sink, global_q, global_k, global_v)
};

/// Options of LongformerAttention.
struct LongformerOptions {
  Index left = 256;  ///< number of window keys before the query, at least 0
  /// Number of window keys after the query, at least 0. If causal, none is visible.
  Index right = 256;
  /// This many positions, from the first on, are global.
  Index first_global = 0;
  /// More global positions, strictly ascending, none among the leading ones above.
  std::vector<Index> global = {};
  /// If true, row i sees no key after its own position.
  bool causal = false;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

namespace detail {

/// Longformer's pattern restricted to some of its rows.
struct LongformerRows {
  Window window;
  GlobalTokens tokens;
  GlobalRows rows;

  WindowAndTokens pattern(Index /*head*/, const SequenceShape& /*shape*/) const {
    return WindowAndTokens(window, tokens, rows);
  }
  static Index pattern_period(Index /*heads*/) { return 1; }
};

}  // namespace detail

/// Longformer attention: softmax over a window around each query and over the global positions.
/// Every query sees the global positions, and their own queries see every key. Logits, shapes,
/// errors and calls are as in SoftmaxOperator.
///
/// The rows of global positions may have separate projections, global_q, global_k and global_v
/// (section 3.1, "Linear projections for global attention"): such a row i is softmax attention of
/// global_q_i over global_k and global_v of all keys that it sees. All other rows read q, k and v,
/// also at global positions; rows of q at global positions are not read then. With separate
/// projections there is no decoder (it refuses them), and no gradients of bias and sink.
/// Cost: 2 (D + Dv) flops for each visible pair; there are about N (left + 1 + right + 2 globals)
/// of them.
class LongformerAttention : public SoftmaxOperator<LongformerAttention>,
                            public ForwardCalls<LongformerAttention>,
                            public BackwardCalls<LongformerAttention> {
  using Base = SoftmaxOperator<LongformerAttention>;

 public:
  LongformerOptions options;  ///< checked at every call

  /// Holds the options.
  explicit LongformerAttention(const LongformerOptions& chosen = {}) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "LongformerAttention"; }
  /// The pattern is the same for all shapes.
  static constexpr bool kPatternKnowsShape = false;

  /// The inputs, for tensors of T.
  template <class T>
  using Inputs = LongformerInputs<T>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = LongformerGrads<T>;

  using ForwardCalls<LongformerAttention>::forward;
  using BackwardCalls<LongformerAttention>::backward;
  using Base::backward_workspace_bytes;
  using Base::workspace_bytes;

  /// The keys that each row sees: the window and the global tokens, the same for all heads.
  WindowAndTokens pattern(Index /*head*/, const SequenceShape& /*shape*/) const {
    return WindowAndTokens(window(), tokens());
  }

  /// The global positions. \throws std::invalid_argument if they do not ascend
  GlobalTokens tokens() const {
    return GlobalTokens::first_and(options.first_global, options.global, options.causal, name());
  }

  /// The pattern of some rows; the others see nothing.
  detail::LongformerRows rows_alone(GlobalRows rows) const { return {window(), tokens(), rows}; }

  /// \throws std::invalid_argument if a side of the window is negative, or the global positions do
  /// not ascend
  void check_options() const {
    check_window(name(), window());
    tokens();
  }

  /// \throws std::invalid_argument if a position in `global` is beyond the keys
  void check_pattern(const SequenceShape& shape) const {
    if (!options.global.empty()) check_global(name(), tokens(), shape.keys);
  }

  /// Checks what `forward` takes. \throws std::invalid_argument as SoftmaxOperator
  template <class T>
  void check(const InputsOf<LongformerAttention, T>& inputs, const View<T>& out,
             const SavedOf<LongformerAttention, T>& saved = {}) const;

  /// The same without check_pattern, for a part of a sequence's rows, as in SoftmaxOperator.
  template <class T>
  void check_tensors(const LongformerInputs<T>& inputs, const View<T>& out,
                     const SoftmaxSaved<T>& saved, const std::optional<Index>& sequence = {}) const;

  /// Checks what `backward` takes. \throws std::invalid_argument as SoftmaxOperator
  template <class T>
  void check_backward(const InputsOf<LongformerAttention, T>& inputs, const View<const T>& out,
                      const SavedOf<LongformerAttention, T>& saved, const View<const T>& d_out,
                      const GradsOf<LongformerAttention, T>& grads) const;

  /// The same without check_pattern, for a part of a sequence's rows.
  template <class T>
  void check_backward_tensors(const Inputs<T>& inputs, const View<const T>& out,
                              const SavedOf<LongformerAttention, T>& saved,
                              const View<const T>& d_out, const Grads<T>& grads,
                              const std::optional<Index>& sequence = {}) const;

  /// Checks the gradient with respect to lse, once `check_backward` has passed.
  /// \throws std::invalid_argument
  template <class T>
  static void check_d_lse(const Inputs<T>& inputs, const View<const T>& d_lse,
                          const Grads<T>& grads);

  /// Bytes of scratch memory for `forward` with that many workers if global rows have separate
  /// projections.
  template <class T>
  [[nodiscard]] Index global_workspace_bytes(const AttentionShape& shape, Index workers = 1) const {
    return ForwardCalls<LongformerAttention>::template counted_forward<T>(shape, workers);
  }
  /// Bytes of scratch memory for `backward` then, as in SoftmaxOperator.
  template <class T>
  [[nodiscard]] Index global_backward_workspace_bytes(const AttentionShape& shape,
                                                      Index workers = 1) const {
    return BackwardCalls<LongformerAttention>::template counted_backward<T>(shape, workers);
  }

 private:
  friend class ForwardCalls<LongformerAttention>;
  friend class BackwardCalls<LongformerAttention>;

  Window window() const { return {options.left, options.right}; }

  /// \throws std::invalid_argument if their shapes differ from those of q, k and v
  template <class T>
  static void check_global_tensors(const Inputs<T>& in);

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const;

  /// Writes the gradients, as in SoftmaxOperator. Rows of global positions are a second pass if
  /// they have separate projections.
  template <class T>
  void run_backward(const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
                    const View<const T>& d_out, const Grads<T>& grads, const ExecutorRef& executor,
                    const View<const T>& d_lse = {}) const;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/longformer.inl.hpp"
#endif
