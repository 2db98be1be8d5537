// SPDX-License-Identifier: MIT
/// \file
/// Luna attention over a sequence that is spread over ranks, all of which have the packed rows.
#pragma once

#include <concepts>
#include <memory>
#include <string>

#include "fovea/attention/luna.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/shared_rows/keys_backward.hpp"
#include "fovea/distributed/shared_rows/keys_forward.hpp"
#include "fovea/distributed/shared_rows/queries_backward.hpp"
#include "fovea/distributed/shared_rows/queries_forward.hpp"
#include "fovea/distributed/softmax/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Refuses what a step does not take over ranks: packed sequences, and a bias or mask, which would
/// have rows or columns of the spread sequence.
/// \throws std::invalid_argument
template <class T>
void check_spread_step(const char* op, const SoftmaxInputs<T>& in) {
  check_spread(op, in);
  const auto check_none = [&](const char* tensor, bool is_none) {
    if (is_none) return;
    refuse_given(op, tensor, "the sequence is distributed over ranks");
  };
  check_none("bias", in.bias.is_none());
  check_none("mask", in.mask.is_none());
}

/// Checks what this rank brings to the first step. \throws std::invalid_argument
template <class T, class Check>
void check_step(const LunaPack& op, const SoftmaxInputs<T>& in, const Rows& rows,
                const Check& check_tensors) {
  check_spread_step(op.name(), in);
  check_own_rows(op.name(), "k", in.k, rows);
  check_own_rows(op.name(), "v", in.v, rows);
  SoftmaxInputs<T> own = in;
  own.key_lengths = {};
  check_tensors(own);
  fovea::detail::check_key_lengths(op.name(), in.key_lengths, in.q.batch(), "q", rows.count(),
                                   "the sequence");
}

/// The same for the second step, whose keys are the packed rows.
template <class T, class Check>
void check_step(const LunaUnpack& op, const SoftmaxInputs<T>& in, const Rows& rows,
                const Check& check_tensors) {
  check_spread_step(op.name(), in);
  check_own_rows(op.name(), "q", in.q, rows);
  check_tensors(in);
}

/// The packed rows of a step.
template <class T>
Index packed_rows(const LunaPack& /*op*/, const SoftmaxInputs<T>& in) {
  return in.q.rows();
}
/// Those of the second step.
template <class T>
Index packed_rows(const LunaUnpack& /*op*/, const SoftmaxInputs<T>& in) {
  return in.k.rows();
}

/// What is the same on all ranks of a step, in words.
template <class Op, class T>
std::string step_text(const Op& op, const char* pass, const SoftmaxInputs<T>& in,
                      const Rows& rows) {
  std::string text = call_text(op.name(), pass, in, rows);
  return text.append(", ").append(std::to_string(packed_rows(op, in))).append(" packed rows");
}

/// The passes of a step.
template <class Op, class T>
struct LunaPasses;
/// Packed rows are queries.
template <class T>
struct LunaPasses<LunaPack, T> {
  using Forward = SharedQueriesForward<T>;    ///< the forward pass
  using Backward = SharedQueriesBackward<T>;  ///< the backward pass
};
/// Packed rows are keys.
template <class T>
struct LunaPasses<LunaUnpack, T> {
  using Forward = SharedKeysForward<T>;    ///< the forward pass
  using Backward = SharedKeysBackward<T>;  ///< the backward pass
};

}  // namespace detail

/// A step of Luna attention.
template <class Op, class T>
concept LunaStepAttention = (std::same_as<Op, LunaPack> ||
                             std::same_as<Op, LunaUnpack>)&&std::floating_point<T>;

/// Computes a step of Luna attention over a sequence that is spread over ranks, on all of them
/// together. The bits are those of `op.forward` over the whole sequence, for any number of ranks
/// and any layout.
/// \param op LunaPack or LunaUnpack
/// \param inputs of LunaPack: q [B, Hq, P, D] of the packed rows, which must be the same on all
/// ranks, and k and v of this rank's rows, in ascending order; key lengths count keys of the whole
/// sequence. Of LunaUnpack: q of this rank's rows, and k and v [B, Hk, P, ...] of the packed rows,
/// the same on all ranks. Neither takes a bias or mask over ranks
/// \param out of LunaPack [B, Hq, P, Dv], which all ranks get; of LunaUnpack [B, Hq, own rows, Dv]
/// \param saved lse of these rows, written if it has a tensor
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows. LunaUnpack sends nothing. Of LunaPack a running softmax of P (Dv
/// + 3) numbers for each query head goes from range to range, in the order of the rows, and to all
/// ranks. All ranks compute at once, and wait for each other only to merge. Keys and values of
/// segments of kKeySegment rows that lie on several ranks travel to that of the first row.
/// Memory: the segments that lie on several ranks, and of LunaPack a running softmax of each query
/// head for each of the rank's segments; of LunaUnpack the scratch of `forward` of the operator for
/// each range of the rank's rows.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires LunaStepAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const SavedOf<Op, T>& saved,
                                                  const Rows& rows, E&& executor = {}) {
  const View<T> to(out);
  return detail::run_call(
      rows, op, detail::step_text(op, ".forward", inputs, rows),
      [&] {
        detail::check_step(op, inputs, rows,
                           [&](const SoftmaxInputs<T>& own) { op.check(own, to, saved); });
      },
      executor,
      [&](auto& threads) {
        return std::make_unique<typename detail::LunaPasses<Op, T>::Forward>(
            inputs, op.softmax_options(), to, saved, rows, threads);
      });
}

/// The same, where nothing is saved.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires LunaStepAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const Rows& rows, E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SoftmaxSaved<T>{}, rows, executor);
}

/// Computes the gradients of a step of Luna attention over a sequence that is spread over ranks, on
/// all of them together. The bits are those of `op.backward` over the whole sequence.
/// \param op, inputs as in `forward`   \param out, saved as `forward` wrote them, with lse
/// \param d_out the gradient of the loss with respect to out, or with d_lse, as in `backward` over
/// softmax operators; of LunaPack the same on all ranks
/// \param grads of rows that are spread: those of this rank; of packed rows: their sums over all
/// ranks. Those that have a tensor are written; the ranks may want different ones, but q of
/// LunaPack and sink [Hq], which is that of the whole sequence, all or none
/// \param executor as in `forward`   \returns the messages of this rank
/// \throws as `forward`, also std::invalid_argument if the gradient of a bias is asked for
///
/// Cost: that of the rank's rows. The sums of packed rows go from range to range and to all ranks:
/// of LunaPack P D numbers for each query head, of LunaUnpack P rows of D and of Dv numbers,
/// rounded up to whole vectors, for each key head, which go over the ranges once for each of its
/// query heads. All ranks compute at once, and wait for each other only to add up. Rows of segments
/// that lie on several ranks travel to that of the first row, and their gradients back: segments of
/// kKeySegment keys, or blocks of block_rows(N) queries. Where lse is large, LunaPack sends 4 P
/// numbers for each query head more. Memory: the rank's rows twice, and what its blocks add to the
/// packed rows: for each block of 512 rows (of less, if N is below 4096) as many numbers as in one
/// sum.
template <class Op, class Out, class T = Scalar<Out>, class D = SoftmaxOutGrads<T>,
          class E = Serial>
requires LunaStepAttention<Op, T> Traffic backward(const Op& op, const InputsOf<Op, T>& inputs,
                                                   const Out& out, const SavedOf<Op, T>& saved,
                                                   const D& d_out, const GradsOf<Op, T>& grads,
                                                   const Rows& rows, E&& executor = {}) {
  const View<const T> from(out);
  const SoftmaxOutGrads<T> d = detail::out_grads<T>(d_out);
  std::string call = detail::step_text(op, ".backward", inputs, rows);
  if (std::same_as<Op, LunaPack> && !grads.q.is_none()) call.append(", the gradient of q");
  call.append(detail::grads_text<T>(d, grads.sink));
  return detail::run_call(
      rows, op, call,
      [&] {
        detail::check_spread_grads(Op::name(), grads);
        detail::check_step(op, inputs, rows, [&](const SoftmaxInputs<T>& own) {
          op.check_backward(own, from, saved, d.d_out, grads);
          op.check_d_lse(own, d.d_lse, grads);
        });
      },
      executor,
      [&](auto& threads) {
        return std::make_unique<typename detail::LunaPasses<Op, T>::Backward>(
            inputs, op.softmax_options(), from, saved, d.d_out, grads, rows, threads, d.d_lse);
      });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
