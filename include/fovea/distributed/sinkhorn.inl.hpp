// SPDX-License-Identifier: MIT
/// \file
/// Included by sinkhorn.hpp, where it is documented.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "fovea/attention/sinkhorn/check.hpp"
#include "fovea/distributed/messages/head_all_to_all.hpp"
#include "fovea/distributed/sinkhorn.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Checks this rank's arguments: its rows, and the sizes of the whole sequence.
/// \param check_tensors called with the inputs without key lengths, which are the whole sequence's
///  \throws std::invalid_argument
template <class T, class Check>
void check_sinkhorn_call(const SinkhornAttention& op, const SinkhornInputs<T>& in,
                         const Sharding& rows, const Check& check_tensors) {
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

/// The inputs of both passes of Sinkhorn attention, redistributed by heads.
template <class T>
struct SinkhornSlices {
  /// Allocates memory for all rows of the rank's heads. \param in checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SinkhornSlices(const SinkhornAttention& op, const SinkhornInputs<T>& in, const Sharding& rows)
      : blocks(blocks_of(rows.layout(), op.options.block)),
        slices(rows.ranks(), in.q.batch(), in.k.heads()),
        inputs(in) {
    inputs.q = slices.reads(in.q, rows.layout());
    inputs.k = slices.reads(in.k, rows.layout());
    inputs.v = slices.reads(in.v, rows.layout());
    // A rank without blocks needs no logits.
    inputs.sorting = slices.reads(
        in.sorting.empty() ? View<const T>(nullptr, {in.k.batch(), in.k.heads(), 0, blocks.rows()})
                           : View<const T>(in.sorting),
        blocks);
  }

  RowLayout blocks;          ///< of the rows of the sorting logits
  HeadAllToAll<T> slices;    ///< of the call
  SinkhornInputs<T> inputs;  ///< all rows of this rank's heads
};

}  // namespace detail

template <class T>
CommStats DistributedForward<SinkhornAttention, T>::forward(
    const SinkhornAttention& op, const SinkhornInputs<T>& inputs, const View<T>& out,
    const SoftmaxSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  std::string text = detail::call_text(op.name(), ".forward", inputs, rows);
  if (!saved.lse.empty()) text.append(", lse");
  return detail::run_call(
      rows, call, text,
      [&] {
        detail::check_sinkhorn_call(op, inputs, rows, [&](const SinkhornInputs<T>& own) {
          check_outputs(op.name(), own, out, saved);
        });
      },
      [&](const ExecutorRef& /*threads*/) {
        auto tensors = std::make_unique<detail::SinkhornSlices<T>>(op, inputs, rows);
        const View<T> all = tensors->slices.writes(out, rows.layout());
        const SoftmaxSaved<T> kept{tensors->slices.writes(saved.lse, rows.layout())};
        return pass_by_heads(op.name(), std::move(tensors),
                             [=](const auto& of, const ExecutorRef& threads) {
                               op.forward(of.inputs, all, kept, threads);
                             });
      });
}

template <class T>
CommStats DistributedBackward<SinkhornAttention, T>::backward(
    const SinkhornAttention& op, const SinkhornInputs<T>& inputs, const View<const T>& out,
    const SoftmaxSaved<T>& saved, const View<const T>& d_out, const SinkhornGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  std::string text = detail::call_text(op.name(), ".backward", inputs, rows);
  grads.for_each_tensor([&](const char* name, const View<T>& grad) {
    if (!grad.empty()) text.append(", the gradient of ").append(name);
  });
  return detail::run_call(
      rows, call, text,
      [&] {
        detail::check_sinkhorn_call(op, inputs, rows, [&](const SinkhornInputs<T>& own) {
          check_softmax_backward(op.name(), own, out, saved, d_out, grads);
        });
      },
      [&](const ExecutorRef& /*threads*/) {
        auto tensors = std::make_unique<detail::SinkhornSlices<T>>(op, inputs, rows);
        HeadAllToAll<T>& slices = tensors->slices;
        const View<const T> all = slices.reads(out, rows.layout());
        const View<const T> d_all = slices.reads(d_out, rows.layout());
        const SoftmaxSaved<T> kept{slices.reads(View<const T>(saved.lse), rows.layout())};
        const SinkhornGrads<T> wanted{
            slices.writes(grads.q, rows.layout()), slices.writes(grads.k, rows.layout()),
            slices.writes(grads.v, rows.layout()), slices.writes(grads.sorting, tensors->blocks)};
        return pass_by_heads(op.name(), std::move(tensors),
                             [=](const auto& of, const ExecutorRef& threads) {
                               op.backward(of.inputs, all, kept, d_all, wanted, threads);
                             });
      });
}

FOVEA_RANKS_PASSES(FORWARD, SinkhornAttention)
FOVEA_RANKS_PASSES(BACKWARD, SinkhornAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
