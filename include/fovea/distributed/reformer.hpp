// SPDX-License-Identifier: MIT
/// \file
/// Reformer attention over a sequence that is spread over ranks: which rows see each other is known
/// when all are sorted, so that the call is made by heads.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "fovea/attention/reformer.hpp"
#include "fovea/distributed/call.hpp"
#include "fovea/distributed/head_slices.hpp"

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
  text.append(", v ").append(sizes_text(in.v)).append(" (batch, heads, width), key lengths");
  for (const Index length : in.key_lengths) text.append(" ").append(std::to_string(length));
  return text;
}

}  // namespace detail

/// One forward pass.
template <class T>
class ReformerForwardPass {
 public:
  /// Takes the memory of the rows of the rank's heads.
  /// \param op, inputs, out, saved of this rank's rows, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ReformerForwardPass(const ReformerAttention& op, const ReformerInputs<T>& inputs,
                      const View<T>& out, const ReformerSaved<T>& saved, const Rows& rows)
      : op_(op),
        slices_(rows.ranks(), inputs.qk.batch(), inputs.qk.heads()),
        inputs_(inputs),
        out_(slices_.writes(out, rows.layout())),
        saved_{slices_.writes(saved.lse, rows.layout()),
               slices_.writes(saved.round_lse, rows.layout())} {
    inputs_.qk = slices_.reads(inputs.qk, rows.layout());
    inputs_.v = slices_.reads(inputs.v, rows.layout());
  }

  /// Computes the heads of this rank, and writes its rows. \throws what a rank has thrown
  template <class E>
  std::exception_ptr run(E&& executor) {
    slices_.run(op_.name(), [&] { op_.forward(inputs_, out_, saved_, executor); });
    return nullptr;
  }

  /// The messages of this rank.
  Traffic traffic() const { return slices_.traffic(); }

 private:
  ReformerAttention op_;
  HeadSlices<T> slices_;
  ReformerInputs<T> inputs_;  // as what follows, all rows of this rank's heads
  View<T> out_;
  ReformerSaved<T> saved_;
};

/// One backward pass.
template <class T>
class ReformerBackwardPass {
 public:
  /// Takes the memory of the rows of the rank's heads.
  /// \param op, inputs, out, saved, d_out, grads of this rank's rows, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ReformerBackwardPass(const ReformerAttention& op, const ReformerInputs<T>& inputs,
                       const View<const T>& out, const ReformerSaved<T>& saved,
                       const View<const T>& d_out, const ReformerGrads<T>& grads, const Rows& rows)
      : op_(op),
        slices_(rows.ranks(), inputs.qk.batch(), inputs.qk.heads()),
        inputs_(inputs),
        out_(slices_.reads(out, rows.layout())),
        d_out_(slices_.reads(d_out, rows.layout())),
        grads_{slices_.writes(grads.qk, rows.layout()), slices_.writes(grads.v, rows.layout())} {
    inputs_.qk = slices_.reads(inputs.qk, rows.layout());
    inputs_.v = slices_.reads(inputs.v, rows.layout());
    if (saved.round_lse.is_none()) return;
    saved_.round_lse = slices_.reads(View<const T>(saved.round_lse), rows.layout());
  }

  /// Computes the heads of this rank, and writes the gradients of its rows. \throws what a rank has
  /// thrown
  template <class E>
  std::exception_ptr run(E&& executor) {
    slices_.run(op_.name(), [&] { op_.backward(inputs_, out_, saved_, d_out_, grads_, executor); });
    return nullptr;
  }

  /// The messages of this rank.
  Traffic traffic() const { return slices_.traffic(); }

 private:
  ReformerAttention op_;
  HeadSlices<T> slices_;
  ReformerInputs<T> inputs_;  // as what follows, all rows of this rank's heads
  ReformerSaved<T> saved_;
  View<const T> out_;
  View<const T> d_out_;
  ReformerGrads<T> grads_;
};

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
      rows, op.name(), text,
      [&] {
        detail::check_reformer_call(op, inputs, rows,
                                    [&](const ReformerAttention& of_rows, const auto& own) {
                                      of_rows.check(own, to, saved);
                                    });
      },
      executor,
      [&](auto& /*threads*/) {
        return std::make_unique<ReformerForwardPass<T>>(op, inputs, to, saved, rows);
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
      rows, op.name(), text,
      [&] {
        detail::check_reformer_call(op, inputs, rows,
                                    [&](const ReformerAttention& of_rows, const auto& own) {
                                      of_rows.check_backward(own, made, saved, d_made, grads);
                                    });
      },
      executor,
      [&](auto& /*threads*/) {
        return std::make_unique<ReformerBackwardPass<T>>(op, inputs, made, saved, d_made, grads,
                                                         rows);
      });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
