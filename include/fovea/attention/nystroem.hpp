// SPDX-License-Identifier: MIT
/// \file
/// Nystroem attention (Xiong et al. 2021, Nystroemformer; MATHS.md, section 7): softmax attention
/// approximated by a few landmarks.
#pragma once

#include <string>
#include <string_view>

#include "fovea/attention/call/checked_calls.hpp"
#include "fovea/attention/nystroem/tensors.hpp"
#include "fovea/core/error.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Nystroem attention: out = softmax(scale q kl^T) Z softmax(scale ql k^T) v for each head (Xiong
/// et al. 2021, eqs. 13 and 14, without the convolution), for float and double. The landmarks ql
/// and kl are the means of m segments of consecutive rows of q and of k, and Z approximates the
/// inverse of A = softmax(scale ql kl^T) by a fixed number of iterations (eq. 11):
///
///     Z <- Z / 4 (13 I - A Z (15 I - A Z (7 I - A Z))),   Z0 = A^T / (|A|_1 |A|_inf)
///
/// The number of landmarks must divide the number of rows of q and that of k, which may differ.
/// With key lengths, which require as many queries as keys, a sequence consists of its first n
/// tokens: its result is that of these tokens alone, m must divide n, and queries from n on give +0
/// with lse -infinity. Packed sequences are refused.
///
/// Every row depends on all tokens, so the operator is not causal: a causal option or a decoder is
/// a compile error. NaN and infinities in visible rows reach every row of the head. The bits do not
/// depend on threads, heads or strides, nor, except with NystroemScale::batch_max, on the batch.
///
/// Errors: `forward` and `backward` throw what `check` and `check_backward` throw, and
/// std::bad_alloc, before anything is written.
///
/// Cost: 2 m (D + Dv) flops for each query and for each key and query head, and 8 m^3 per iteration
/// and head. Memory: O(B Hq m (D + Dv + m)); no Nq x Nk matrix is computed.
class NystroemAttention : public CheckedCalls<NystroemAttention>,
                          public OperatorTypes<NystroemInputs, NystroemSaved, NystroemGrads,
                                               AttentionShape, NystroemOptions> {
 public:
  using OperatorTypes::OperatorTypes;

  /// The operator's name.
  static constexpr const char* name() { return "NystroemAttention"; }

  /// Checks that the number of landmarks divides the numbers of rows and the key lengths.
  /// \throws std::invalid_argument if it does not
  void check_sequence(Index queries, Index keys, IndexSpan key_lengths) const {
    check_divides("q", queries);
    check_divides("k", keys);
    for (std::size_t b = 0; b < key_lengths.size(); ++b) {
      if (key_lengths[b] % options.landmarks == 0) continue;
      refuse(name(), "key_lengths[" + std::to_string(b) + "]", std::to_string(key_lengths[b]),
             "a multiple of " + std::to_string(options.landmarks) + ", the landmarks");
    }
  }

  /// The number of pairs in the three softmaxes of one query head: queries and landmarks, landmarks
  /// and keys, landmarks and landmarks.
  [[nodiscard]] Index attended_pairs(const AttentionShape& s, Index /*head*/ = 0) const {
    const Index m = options.landmarks;
    return add_pairs(add_pairs(add_pairs(0, s.queries, m), s.keys, m), m, m);
  }

  /// There is no decoder; calling this is a compile error.
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "NystroemAttention has no decoder: it is not causal, since every row depends on "
                  "the means of all tokens");
  }

 private:
  friend class ForwardCalls<NystroemAttention>;
  friend class BackwardCalls<NystroemAttention>;
  friend class CheckedCalls<NystroemAttention>;

  fovea::Shape landmark_shape(const AttentionShape& s, Index columns) const {
    return {s.batch, s.query_heads, options.landmarks, columns};
  }

  /// The multiply-adds of a forward pass.
  double products(const AttentionShape& s) const {
    const auto m = static_cast<double>(options.landmarks);
    const double rows =
        static_cast<double>(s.queries + s.keys) * static_cast<double>(s.width + s.value_width);
    return static_cast<double>(s.batch * s.query_heads) *
           (rows * m + 4 * m * m * m * static_cast<double>(options.iterations));
  }

  /// Checks the options and the inputs.
  template <class T>
  void check_read(const NystroemInputs<T>& inputs) const;
  /// Checks the numbers of rows and the key lengths.
  template <class T>
  void check_values(const NystroemInputs<T>& inputs) const;
  template <class T>
  fovea::Shape saved_shape(const NystroemInputs<T>& inputs, std::string_view tensor) const;
  void check_divides(const char* tensor, Index rows) const {
    if (rows % options.landmarks == 0) return;
    refuse(name(), std::string(tensor) + " has " + std::to_string(rows) + " rows",
           "expected a multiple of " + std::to_string(options.landmarks) + ", the landmarks");
  }

  template <class T>
  void run(const NystroemInputs<T>& inputs, const View<T>& out, const NystroemSaved<T>& saved,
           const ExecutorRef& executor) const;

  /// Writes the gradients of the loss, given d_out, its gradient with respect to out: the exact
  /// derivatives of `forward`, including that of the norm which divides A^T. If several columns
  /// have the largest sum, the first one gets the gradient of |A|_1; |A|_inf is always 1 and has no
  /// gradient. Cost: 2.5 times the flops of the forward pass (3 times if the landmark tensors were
  /// not saved), and 30 m^3 per iteration and head. Memory: O(B Hq m (D + Dv + m)), and n m^2 for
  /// each worker.
  template <class T>
  void run_backward(const NystroemInputs<T>& inputs, const View<const T>& out,
                    const NystroemSaved<T>& saved, const View<const T>& d_out,
                    const NystroemGrads<T>& grads, const ExecutorRef& executor) const;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/nystroem.inl.hpp"
#endif
