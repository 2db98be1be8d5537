// SPDX-License-Identifier: MIT
/// \file
/// Included by reformer.hpp, where it is documented.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "fovea/attention/reformer/check.hpp"
#include "fovea/distributed/messages/head_all_to_all.hpp"
#include "fovea/distributed/reformer.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Checks this rank's arguments: its rows, and the sizes of the whole sequence.
/// \param check_tensors called with the operator and inputs of a call with only this rank's rows
/// \throws std::invalid_argument
template <class T, class Check>
void check_reformer_call(const ReformerAttention& op, const ReformerInputs<T>& in,
                         const Sharding& rows, const Check& check_tensors) {
  check_own_rows(op.name(), "qk", in.qk, rows);
  check_own_rows(op.name(), "v", in.v, rows);
  // Chunks are parts of the whole sequence: the rank's rows need not be a multiple.
  ReformerAttention of_rows = op;
  of_rows.options.chunk = 1;
  ReformerInputs<T> own = in;
  own.key_lengths = {};
  check_tensors(of_rows, own);
  check_reformer_options<T>(op.name(), op.options, rows.count());
  fovea::detail::check_key_lengths(op.name(), in.key_lengths, in.qk.batch(), "qk", rows.count(),
                                   "the sequence");
}

/// Describes the parts of a call that must be equal on all ranks.
template <class T>
std::string reformer_text(std::string_view pass, const ReformerInputs<T>& in,
                          const Sharding& rows) {
  std::string text(ReformerAttention::name());
  text.append(pass).append(" of ").append(std::to_string(rows.count())).append(" rows, ");
  text.append(std::to_string(sizeof(T))).append(" bytes per number, qk ").append(sizes_text(in.qk));
  text.append(", v ").append(sizes_text(in.v));
  return text.append(" (batch, heads, width)").append(numbers_text(in));
}

/// The inputs of both passes of Reformer attention, redistributed by heads.
template <class T>
struct ReformerSlices {
  /// Allocates memory for all rows of the rank's heads. \param in checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ReformerSlices(const ReformerInputs<T>& in, const Sharding& rows)
      : slices(rows.ranks(), in.qk.batch(), in.qk.heads()), inputs(in) {
    inputs.qk = slices.reads(in.qk, rows.layout());
    inputs.v = slices.reads(in.v, rows.layout());
  }

  HeadAllToAll<T> slices;    ///< of the call
  ReformerInputs<T> inputs;  ///< all rows of this rank's heads
};

}  // namespace detail

template <class T>
CommStats DistributedForward<ReformerAttention, T>::forward(
    const ReformerAttention& op, const ReformerInputs<T>& inputs, const View<T>& out,
    const ReformerSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  std::string text = detail::reformer_text(".forward", inputs, rows);
  if (!saved.lse.empty()) text.append(", lse");
  if (!saved.round_lse.empty()) text.append(", round_lse");
  return detail::run_call(
      rows, call, text,
      [&] {
        detail::check_reformer_call(op, inputs, rows,
                                    [&](const ReformerAttention& of_rows, const auto& own) {
                                      of_rows.check(own, out, saved);
                                    });
      },
      [&](const ExecutorRef& /*threads*/) {
        auto tensors = std::make_unique<detail::ReformerSlices<T>>(inputs, rows);
        const auto written = [&](const View<T>& x) {
          return tensors->slices.writes(x, rows.layout());
        };
        const View<T> all = written(out);
        const ReformerSaved<T> kept{written(saved.lse), written(saved.round_lse)};
        return pass_by_heads(op.name(), std::move(tensors),
                             [=](const auto& of, const ExecutorRef& threads) {
                               op.forward(of.inputs, all, kept, threads);
                             });
      });
}

template <class T>
CommStats DistributedBackward<ReformerAttention, T>::backward(
    const ReformerAttention& op, const ReformerInputs<T>& inputs, const View<const T>& out,
    const ReformerSaved<T>& saved, const View<const T>& d_out, const ReformerGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  std::string text = detail::reformer_text(".backward", inputs, rows);
  if (!saved.round_lse.empty()) text.append(", round_lse");
  grads.for_each_tensor([&](const char* name, const View<T>& grad) {
    if (!grad.empty()) text.append(", the gradient of ").append(name);
  });
  return detail::run_call(
      rows, call, text,
      [&] {
        detail::check_reformer_call(op, inputs, rows,
                                    [&](const ReformerAttention& of_rows, const auto& own) {
                                      of_rows.check_backward(own, out, saved, d_out, grads);
                                    });
      },
      [&](const ExecutorRef& /*threads*/) {
        auto tensors = std::make_unique<detail::ReformerSlices<T>>(inputs, rows);
        HeadAllToAll<T>& slices = tensors->slices;
        const View<const T> all = slices.reads(out, rows.layout());
        const View<const T> d_all = slices.reads(d_out, rows.layout());
        ReformerSaved<T> kept;
        if (!saved.round_lse.empty()) {
          kept.round_lse = slices.reads(View<const T>(saved.round_lse), rows.layout());
        }
        const ReformerGrads<T> wanted{slices.writes(grads.qk, rows.layout()),
                                      slices.writes(grads.v, rows.layout())};
        return pass_by_heads(op.name(), std::move(tensors),
                             [=](const auto& of, const ExecutorRef& threads) {
                               op.backward(of.inputs, all, kept, d_all, wanted, threads);
                             });
      });
}

FOVEA_RANKS_PASSES(FORWARD, ReformerAttention)
FOVEA_RANKS_PASSES(BACKWARD, ReformerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
