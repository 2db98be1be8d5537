// SPDX-License-Identifier: MIT
/// \file
/// Smart Bird attention (Wu et al. 2021; MATHS.md, section 5): a sketch with one head and a few
/// dimensions chooses the keys that each row and head attends to.
#pragma once

#include "fovea/attention/call/checked_calls.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/indexed/index_tensor.hpp"
#include "fovea/attention/smart_bird/decoder.hpp"
#include "fovea/attention/smart_bird/options.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Smart Bird attention: out[b, h, i] = sum_j softmax_j(s_ij) v_j over the K keys that row i of
/// head h keeps. The sketch gives alpha_ij = softmax_j(<sq_i, sk_j> / sqrt(d)) over the visible
/// keys, and the policy turns it into a sampling weight p_ij, 1 / log(alpha_ij)^2 in eq. 2. A row
/// keeps the keys with the K largest u_ij p_ij, where u_ij is uniform in (0, 1) and independent for
/// every batch entry, head, row and key (eq. 3). Among equal scores the smaller key is kept; a key
/// with alpha = 1 is always kept; if at most K keys are visible, all are kept. Visible keys are
/// those within the key length or the packed sequence and, if causal, up to the row's position. See
/// MATHS.md, section 5.
///
/// Inputs besides q, k and v: sketch_q [B, 1, Nq, d] and sketch_k [B, 1, Nk, d], in the type of the
/// arithmetic; and optionally draws [B, Hq, Nq, Nk] that replace those made from the seed, for
/// comparison with other programs.
///
/// A row becomes NaN if its visible sketch contains a NaN, or an infinity that makes an alpha NaN;
/// its indices are then its first keys. The policy `random` does not read the sketch. The bits are
/// the same for any number of threads, and the chosen keys also at every instruction-set level.
///
/// Cost: O(d) for each pair of row and key, once for all heads; some draws for each head; and 2 K
/// (D + Dv) flops for each row and head. Memory: 8 min(K, Nk) bytes for each row and head for the
/// indices unless they are saved, d numbers for each key, and for each worker 48 bytes for each key
/// (88 for double).
///
/// For long sequences whose sketch has up to 4 columns, keys that are near each other in the sketch
/// are grouped into blocks of 64 (the option `search`). A row then computes O(d^2) numbers for each
/// block, and O(d) for the keys of those blocks that may contain a key to keep, or whose weight is
/// not bounded well: about a tenth of them. The chosen keys are the same. Memory: d + 1 more
/// numbers for each key, twice to four times that if causal, and for each worker 10 bytes more for
/// each key (20 for double).
class SmartBirdAttention : public CheckedCalls<SmartBirdAttention>,
                           public OperatorTypes<SmartBirdInputs, SmartBirdSaved, SmartBirdGrads,
                                                SmartBirdShape, SmartBirdOptions> {
 public:
  using OperatorTypes::OperatorTypes;

  /// A decoder's sizes.
  using DecoderShape = SmartBirdDecoderShape;

  /// A decoder's new tokens: k, v and the keys of the sketch.
  template <class T>
  using Tokens = SketchTokens<T>;

  /// The operator's name.
  static constexpr const char* name() { return "SmartBirdAttention"; }

  /// Chooses the keys that `forward` attends to, without computing attention.
  /// \tparam T the type of the arithmetic
  /// \param indices [B, Hq, Nq, K] with K = keys_per_row: written with ascending keys, and -1 after
  /// the last one
  /// \throws std::invalid_argument before anything is written, also if the executor's arena is in
  /// use or too small; std::bad_alloc
  template <class T = float, class E = Serial>
  void select(const SketchInputs<T>& inputs, const View<Index>& indices, E&& executor = {}) const {
    check_select(inputs, indices);
    run_select(inputs, indices, for_call(executor));
  }

  /// Chooses the keys and returns them as a new tensor [B, heads, Nq, K].
  /// \param heads the number of query heads of the attention
  /// \throws as the call above
  template <class T = float>
  [[nodiscard]] IndexTensor select(const SketchInputs<T>& inputs, Index heads,
                                   const ExecutorRef& executor = {}) const;

  /// The number of (query, key) pairs of one query head that are attended to, ignoring key lengths.
  [[nodiscard]] Index attended_pairs(const SmartBirdShape& shape, Index /*head*/ = 0) const {
    auto sequence = SequenceShape::of(shape.queries, shape.keys, options.alignment);
    sequence.keys = options.places(shape.keys);
    return options.causal ? Causal{}.plan(sequence).attended_pairs()
                          : Dense{}.plan(sequence).attended_pairs();
  }

  /// A decoder: the same attention token by token.
  /// \throws as SmartBirdDecoder's constructor does
  template <class T>
  [[nodiscard]] SmartBirdDecoder<T> decoder(const DecoderShape& shape) const {
    return {name(), options, shape, shape.sketch_width};
  }

 private:
  friend class ForwardCalls<SmartBirdAttention>;
  friend class BackwardCalls<SmartBirdAttention>;
  friend class CheckedCalls<SmartBirdAttention>;

  template <class T>
  void check_read(const Inputs<T>& inputs) const;
  template <class T>
  void check_saved(const Inputs<T>& inputs, const Saved<T>& saved) const;
  template <class T>
  fovea::Shape saved_shape(const Inputs<T>& inputs, std::string_view tensor) const {
    return detail::row_shape(inputs, tensor == "lse" ? 1 : options.keys_per_row);
  }

  template <class T>
  void check_select(const SketchInputs<T>& inputs, const View<Index>& indices) const;
  template <class T>
  void run_select(const SketchInputs<T>& inputs, const View<Index>& indices,
                  const ExecutorRef& executor) const;

  /// Writes the gradients of q, k and v, given d_out, the gradient of the loss with respect to out.
  /// The choice of keys is not differentiated; the sketch is trained by its own head (section 3.1).
  /// Without saved indices the keys are chosen again, with the same result.
  template <class T>
  void run_backward(const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
                    const View<const T>& d_out, const Grads<T>& grads,
                    const ExecutorRef& executor) const;

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/smart_bird.inl.hpp"
#endif
