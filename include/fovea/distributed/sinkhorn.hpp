// SPDX-License-Identifier: MIT
/// \file
/// Sinkhorn attention over a sequence that is spread over ranks: a sorted block is a sum of all
/// blocks, so that the call is made by heads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/sinkhorn.hpp"
#include "fovea/attention/sinkhorn/check.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/head_slices.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Checks what this rank brings to a call: its rows, and the sizes of the whole sequence.
/// \param check_tensors called with the inputs, without key lengths, which are of the whole
/// sequence \throws std::invalid_argument
template <class T, class Check>
void check_sinkhorn_call(const SinkhornAttention& op, const SinkhornInputs<T>& in, const Rows& rows,
                         const Check& check_tensors) {
  check_own_rows(op.name(), "q", in.q, rows);
  check_own_rows(op.name(), "k", in.k, rows);
  check_own_rows(op.name(), "v", in.v, rows);
  SinkhornInputs<T> own = in;
  own.key_lengths = {};
  check_sinkhorn_rows(op.name(), own);
  fovea::detail::check_key_lengths(op.name(), in.key_lengths, in.q.batch(), "q", rows.count(),
                                   "the sequence");
  check_sinkhorn_options<T>(op.name(), op.options, rows.count(), in.key_lengths);
  const Index block = op.options.block;
  check_sorting(op.name(), own, blocks_of(rows.layout(), block).count(rows.ranks().rank()),
                rows.count() / block);
  check_tensors(own);
}

/// The tensors that both passes of Sinkhorn attention read, turned around.
template <class T>
struct SinkhornSlices {
  /// Takes the memory of the rows of the rank's heads. \param in checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SinkhornSlices(const SinkhornAttention& op, const SinkhornInputs<T>& in, const Rows& rows)
      : blocks(blocks_of(rows.layout(), op.options.block)),
        slices(rows.ranks(), in.q.batch(), in.k.heads()),
        inputs(in) {
    inputs.q = slices.reads(in.q, rows.layout());
    inputs.k = slices.reads(in.k, rows.layout());
    inputs.v = slices.reads(in.v, rows.layout());
    // A rank without blocks need not give logits.
    inputs.sorting =
        slices.reads(in.sorting.is_none()
                         ? View<const T>(nullptr, {in.k.batch(), in.k.heads(), 0, blocks.rows()})
                         : View<const T>(in.sorting),
                     blocks);
  }

  RowLayout blocks;          ///< of the rows of the sorting logits
  HeadSlices<T> slices;      ///< of the call
  SinkhornInputs<T> inputs;  ///< all rows of this rank's heads
};

}  // namespace detail

/// Computes Sinkhorn attention over a sequence that is spread over ranks, on all of them together.
/// The bits are those of `op.forward` over the whole sequence, for any number of ranks and any
/// layout; the rows of a block may be on different ranks.
/// \param inputs q, k, v of this rank's rows, [B, H, own rows, D] in ascending order; the sorting
/// logits [B, Hk, own blocks, N / b] of the blocks whose first rows it holds (blocks_of); key
/// lengths count rows of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse of the rank's rows; all ranks give it, or none
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: a rank computes all rows of some key heads, as HeadSlices deals them; with fewer key heads
/// than ranks some ranks compute nothing. Its rows of q, k, v, out and R travel to and from the
/// other ranks' heads. Memory: three times as many numbers as its rows have, and what the operator
/// takes for its heads. **Each rank holds all rows of its heads.**
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const SinkhornAttention& op, const InputsOf<SinkhornAttention, T>& inputs,
                Out&& out, const SavedOf<SinkhornAttention, T>& saved, const Rows& rows,
                E&& executor = {}) {
  const View<T> to(out);
  std::string text = detail::call_text(op.name(), ".forward", inputs, rows);
  if (!saved.lse.is_none()) text.append(", lse");
  return detail::run_call(
      rows, op, text,
      [&] {
        detail::check_sinkhorn_call(op, inputs, rows, [&](const SinkhornInputs<T>& own) {
          check_outputs(op.name(), own, to, saved);
        });
      },
      executor,
      [&](auto& /*threads*/) {
        auto tensors = std::make_unique<detail::SinkhornSlices<T>>(op, inputs, rows);
        const View<T> all = tensors->slices.writes(to, rows.layout());
        const SoftmaxSaved<T> kept{tensors->slices.writes(saved.lse, rows.layout())};
        return pass_by_heads(op.name(), std::move(tensors), [=](const auto& of, auto& threads) {
          op.forward(of.inputs, all, kept, threads);
        });
      });
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const SinkhornAttention& op, const InputsOf<SinkhornAttention, T>& inputs,
                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), SavedOf<SinkhornAttention, T>{}, rows, executor);
}

/// Computes the gradients of Sinkhorn attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k and v, of this rank's rows, and of the sorting logits, of its blocks: those
/// that have a tensor are written; all ranks want the same ones
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
/// Cost, memory: by heads, as `forward`; out, lse, d_out and the gradients travel, too.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
Traffic backward(const SinkhornAttention& op, const InputsOf<SinkhornAttention, T>& inputs,
                 const Out& out, const SavedOf<SinkhornAttention, T>& saved, const D& d_out,
                 const GradsOf<SinkhornAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  const View<const T> made(out);
  const View<const T> d_made(d_out);
  std::string text = detail::call_text(op.name(), ".backward", inputs, rows);
  grads.for_each_tensor([&](const char* name, const View<T>& grad) {
    if (!grad.is_none()) text.append(", the gradient of ").append(name);
  });
  return detail::run_call(
      rows, op, text,
      [&] {
        detail::check_sinkhorn_call(op, inputs, rows, [&](const SinkhornInputs<T>& own) {
          check_rows(op.name(), "out", own, made);
          check_rows(op.name(), "d_out", own, d_made);
          check_lse(op.name(), own, saved);
          check_grads(op.name(), own, made, saved, d_made, grads);
        });
      },
      executor,
      [&](auto& /*threads*/) {
        auto tensors = std::make_unique<detail::SinkhornSlices<T>>(op, inputs, rows);
        HeadSlices<T>& slices = tensors->slices;
        const View<const T> all = slices.reads(made, rows.layout());
        const View<const T> d_all = slices.reads(d_made, rows.layout());
        const SoftmaxSaved<T> kept{slices.reads(View<const T>(saved.lse), rows.layout())};
        const SinkhornGrads<T> wanted{
            slices.writes(grads.q, rows.layout()), slices.writes(grads.k, rows.layout()),
            slices.writes(grads.v, rows.layout()), slices.writes(grads.sorting, tensors->blocks)};
        return pass_by_heads(op.name(), std::move(tensors), [=](const auto& of, auto& threads) {
          op.backward(of.inputs, all, kept, d_all, wanted, threads);
        });
      });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
