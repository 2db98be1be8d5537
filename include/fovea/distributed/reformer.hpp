// SPDX-License-Identifier: MIT
/// \file
/// Reformer attention over a sequence that is spread over ranks: which rows see each other is known
/// when all are sorted, so that the call is made by heads.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "fovea/attention/reformer.hpp"
#include "fovea/attention/reformer/check.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/head_slices.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Checks what this rank brings to a call: its rows, and the sizes of the whole sequence.
/// \param check_tensors called with the operator and the inputs as a call of the rank's rows alone
/// has them \throws std::invalid_argument
template <class T, class Check>
void check_reformer_call(const ReformerAttention& op, const ReformerInputs<T>& in, const Rows& rows,
                         const Check& check_tensors) {
  check_own_rows(op.name(), "qk", in.qk, rows);
  check_own_rows(op.name(), "v", in.v, rows);
  // A chunk is one of the whole sequence: the rank's rows need not be a multiple of it.
  ReformerAttention of_rows = op;
  of_rows.options.chunk = 1;
  ReformerInputs<T> own = in;
  own.key_lengths = {};
  check_tensors(of_rows, own);
  check_reformer_options<T>(op.name(), op.options, rows.count());
  fovea::detail::check_key_lengths(op.name(), in.key_lengths, in.qk.batch(), "qk", rows.count(),
                                   "the sequence");
}

/// What is the same on all ranks of a call, in words.
template <class T>
std::string reformer_text(std::string_view pass, const ReformerInputs<T>& in, const Rows& rows) {
  std::string text(ReformerAttention::name());
  text.append(pass).append(" of ").append(std::to_string(rows.count())).append(" rows, ");
  text.append(std::to_string(sizeof(T))).append(" bytes a number, qk ").append(sizes_text(in.qk));
  text.append(", v ").append(sizes_text(in.v));
  return text.append(" (batch, heads, width)").append(numbers_text(in));
}

/// The tensors that both passes of Reformer attention read, turned around.
template <class T>
struct ReformerSlices {
  /// Takes the memory of the rows of the rank's heads. \param in checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ReformerSlices(const ReformerInputs<T>& in, const Rows& rows)
      : slices(rows.ranks(), in.qk.batch(), in.qk.heads()), inputs(in) {
    inputs.qk = slices.reads(in.qk, rows.layout());
    inputs.v = slices.reads(in.v, rows.layout());
  }

  HeadSlices<T> slices;      ///< of the call
  ReformerInputs<T> inputs;  ///< all rows of this rank's heads
};

}  // namespace detail

/// Computes Reformer attention over a sequence that is spread over ranks, on all of them together.
/// The bits are those of `op.forward` over the whole sequence, for any number of ranks and any
/// layout; the rows of a chunk may be on different ranks.
/// \param inputs qk and v of this rank's rows, [B, H, own rows, D] in ascending order; the
/// projection, which is the same on all ranks; key lengths count rows of the whole sequence
/// \param out [B, H, own rows, Dv], written
/// \param saved lse and round_lse of the rank's rows; all ranks give the same ones
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: a rank computes all rows of some heads, as HeadSlices deals them; with fewer heads than
/// ranks some ranks compute nothing. Its rows of qk, v and out travel to and from the other ranks'
/// heads. Memory: three times as many numbers as its rows have, and what the operator takes for
/// its heads. **Each rank holds all rows of its heads.**
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const ReformerAttention& op, const InputsOf<ReformerAttention, T>& inputs,
                Out&& out, const SavedOf<ReformerAttention, T>& saved, const Rows& rows,
                E&& executor = {}) {
  const View<T> to(out);
  std::string text = detail::reformer_text(".forward", inputs, rows);
  if (!saved.lse.is_none()) text.append(", lse");
  if (!saved.round_lse.is_none()) text.append(", round_lse");
  return detail::run_call(
      rows, op, text,
      [&] {
        detail::check_reformer_call(op, inputs, rows,
                                    [&](const ReformerAttention& of_rows, const auto& own) {
                                      of_rows.check(own, to, saved);
                                    });
      },
      executor,
      [&](auto& /*threads*/) {
        auto tensors = std::make_unique<detail::ReformerSlices<T>>(inputs, rows);
        const auto written = [&](const View<T>& x) {
          return tensors->slices.writes(x, rows.layout());
        };
        const View<T> all = written(to);
        const ReformerSaved<T> kept{written(saved.lse), written(saved.round_lse)};
        return pass_by_heads(op.name(), std::move(tensors), [=](const auto& of, auto& threads) {
          op.forward(of.inputs, all, kept, threads);
        });
      });
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const ReformerAttention& op, const InputsOf<ReformerAttention, T>& inputs,
                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), SavedOf<ReformerAttention, T>{}, rows, executor);
}

/// Computes the gradients of Reformer attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them
/// \param d_out [B, H, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of qk and v, of this rank's rows: those that have a tensor are written; all ranks
/// want the same ones, and give the same members of `saved`
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
/// Cost, memory: by heads, as `forward`; out, d_out and the gradients travel, too.
template <class Out, class DOut, class E = Serial, class T = Scalar<Out>>
Traffic backward(const ReformerAttention& op, const InputsOf<ReformerAttention, T>& inputs,
                 const Out& out, const SavedOf<ReformerAttention, T>& saved, const DOut& d_out,
                 const GradsOf<ReformerAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  const View<const T> made(out);
  const View<const T> d_made(d_out);
  std::string text = detail::reformer_text(".backward", inputs, rows);
  if (!saved.round_lse.is_none()) text.append(", round_lse");
  grads.for_each_tensor([&](const char* name, const View<T>& grad) {
    if (!grad.is_none()) text.append(", the gradient of ").append(name);
  });
  return detail::run_call(
      rows, op, text,
      [&] {
        detail::check_reformer_call(op, inputs, rows,
                                    [&](const ReformerAttention& of_rows, const auto& own) {
                                      of_rows.check_backward(own, made, saved, d_made, grads);
                                    });
      },
      executor,
      [&](auto& /*threads*/) {
        auto tensors = std::make_unique<detail::ReformerSlices<T>>(inputs, rows);
        HeadSlices<T>& slices = tensors->slices;
        const View<const T> all = slices.reads(made, rows.layout());
        const View<const T> d_all = slices.reads(d_made, rows.layout());
        ReformerSaved<T> kept;
        if (!saved.round_lse.is_none()) {
          kept.round_lse = slices.reads(View<const T>(saved.round_lse), rows.layout());
        }
        const ReformerGrads<T> wanted{slices.writes(grads.qk, rows.layout()),
                                      slices.writes(grads.v, rows.layout())};
        return pass_by_heads(op.name(), std::move(tensors), [=](const auto& of, auto& threads) {
          op.backward(of.inputs, all, kept, d_all, wanted, threads);
        });
      });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
