// SPDX-License-Identifier: MIT
/// \file
/// What the softmax operators share: checks, scheduling, the call of the kernel. Only the pattern
/// differs.
#pragma once

#include "fovea/attention/check.hpp"
#include "fovea/attention/decoder.hpp"
#include "fovea/attention/softmax_backward.hpp"
#include "fovea/attention/softmax_call.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The calls of a softmax operator `Op`, which has `name()`, `softmax_options()`, `pattern()` and
/// `check_options()`.
/// out[b, h, i] = sum_j softmax_j(s_ij) v_j over the visible keys j: those that the pattern shows
/// to row i, that lie within the batch's key length or the row's packed sequence, and that neither
/// mask nor bias hides. s_ij is the logit scale <q_i, k_j>, soft-capped, plus bias, minus ALiBi.
/// A row that sees no key is +0, and its lse -inf. A NaN or infinity that is visible reaches the
/// row; what is not visible changes no bit. Weights are divided by their sum last, so values of
/// more than max / Nk may overflow. The bits of a row depend on neither threads, batch, heads,
/// strides nor on the rows and keys that it does not see.
/// Cost: 2 (D + Dv) flops per visible pair, memory O(threads block_rows (D + Dv)).
template <class Op>
class SoftmaxOperator {
 public:
  /// \throws std::invalid_argument naming operator, tensor, dimension, expected and got. O(1) (in
  /// the batch and the number of sequences and heads for what is given of each).
  template <class T>
  void check(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved = {}) const {
    check_read(inputs);
    check_output(Op::name(), "out", out, inputs,
                 {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), inputs.v.width()});
    if (!saved.lse.is_none()) {
      check_output(Op::name(), "lse", saved.lse, inputs,
                   {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), 1});
      detail::check_apart(Op::name(), "lse", saved.lse, "out", out);
    }
  }

  /// \param inputs {q, k, v} and, by their names, the rest of Inputs: views, Eigen tensors or
  ///               matrices
  /// \param out [B, Hq, Nq, Dv], every element written
  /// \throws as `check`, before anything is written; std::bad_alloc for the scratch.
  template <class Out, class T = Scalar<Out>>
  void forward(const Inputs<T>& inputs, Out&& out) const {
    forward(inputs, View<T>(out), Saved<T>{}, Serial{});
  }

  /// \param saved the same with {lse}
  template <class Out, class T = Scalar<Out>>
  void forward(const Inputs<T>& inputs, Out&& out, const Saved<T>& saved) const {
    forward(inputs, View<T>(out), saved, Serial{});
  }

  /// \param executor runs the blocks: `ThreadPool`, any `Executor`, Eigen::ThreadPoolDevice
  template <class Out, class E, class T = Scalar<Out>>
  requires(!std::convertible_to<E, Saved<T>>) void forward(const Inputs<T>& inputs, Out&& out,
                                                           E&& executor) const {
    forward(inputs, View<T>(out), Saved<T>{}, executor);
  }

  template <class Out, class E, class T = Scalar<Out>>
  void forward(const Inputs<T>& inputs, Out&& out, const Saved<T>& saved, E&& executor) const {
    const View<T> to(out);
    check(inputs, to, saved);
    run(inputs, to, saved, as_executor(executor));
  }

  /// \throws std::invalid_argument as `check`, for everything that `backward` takes.
  template <class T>
  void check_backward(const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
                      const View<const T>& d_out, const Grads<T>& grads) const {
    check_read(inputs);
    check_saved(Op::name(), inputs, out, saved, d_out);
    check_grads(Op::name(), inputs, out, saved, d_out, grads);
  }

  /// Gradients of the loss from d_out, its gradient with respect to out: exact derivatives of
  /// `forward`, soft cap, bias, sink and dropout (the same draws) included; 0 for what is not
  /// visible. Weights are recomputed from lse. The same bits for any number of threads.
  /// \param inputs, out, saved as in `forward`, with lse   \param d_out [B, Hq, Nq, Dv]
  /// \param grads written, each if it is given: q, k, v, bias, sink
  /// \throws as `check_backward`, before anything is written; std::bad_alloc for the scratch.
  /// Cost: 2 (3 D + 2 Dv) flops per visible pair, and as much as forward again for the gradient of
  /// bias. Memory O(threads block_rows (D + Dv)), and 4 bytes for each head and block of queries.
  template <class Out, class D, class E = Serial, class T = Scalar<Out>>
  requires std::floating_point<T>
  void backward(const Inputs<T>& inputs, const Out& out, const Saved<T>& saved, const D& d_out,
                const Grads<T>& grads, E&& executor = {}) const {
    const View<const T> from(out);
    const View<const T> d_from(d_out);
    check_backward(inputs, from, saved, d_from, grads);
    const SoftmaxCall call(inputs, op().softmax_options(), op().pattern());
    SoftmaxBackward(call, from, saved, d_from, grads).run(as_executor(executor));
  }

  /// Bytes of scratch of `backward` with that many workers, one batch and head.
  template <class T>
  Index backward_workspace_bytes(const AttentionShape& shape, Index workers = 1) const {
    return SoftmaxBackward<T, decltype(op().pattern())>::workspace_bytes(shape, workers);
  }

  /// The same attention for tokens that come one after the other, with these options.
  /// \throws as the constructor of Decoder
  template <class T>
  Decoder<Op, T> decoder(const DecoderShape& shape) const {
    return {op(), shape};
  }

  /// Bytes of scratch of `forward` with that many workers: independent of the number of keys, and
  /// of the number of queries beyond a block.
  template <class T>
  Index workspace_bytes(const AttentionShape& shape, Index workers = 1) const {
    return workers * slot_elements(shape) * static_cast<Index>(sizeof(Compute<T>));
  }

  /// (query, key) pairs of one head that the pattern shows.
  Index visible_pairs(const AttentionShape& shape) const {
    const auto alignment = op().softmax_options().alignment;
    return op()
        .pattern()
        .plan(SequenceShape::of(shape.queries, shape.keys, alignment))
        .visible_pairs();
  }

 private:
  const Op& op() const { return static_cast<const Op&>(*this); }

  /// Options and inputs.
  template <class T>
  void check_read(const Inputs<T>& inputs) const {
    op().check_options();
    check_softmax_options<Compute<T>>(Op::name(), op().softmax_options());
    check_inputs(Op::name(), inputs);
    check_packing(Op::name(), inputs);
    check_logit_inputs(Op::name(), inputs);
  }

  /// Elements of one worker's scratch, a multiple of a cache line.
  static Index slot_elements(const AttentionShape& shape) {
    return softmax_block_scratch(block_rows(shape.queries), shape.width, shape.value_width);
  }

  template <class T, class E>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved, E&& executor) const {
    const SoftmaxCall call(inputs, op().softmax_options(), op().pattern());
    const auto& sequences = call.sequences();
    const SequenceTasks tasks(sequences, inputs.q.heads(),
                              [&](Index s) { return call.plan(sequences[s]).block_count(); });
    const AttentionShape shape = call.shape();
    const Index slot = slot_elements(shape);
    Workspace scratch(worker_count(executor, tasks.count()),
                      slot * static_cast<Index>(sizeof(Compute<T>)));
    const KernelTable<Compute<T>>& table = kernels<Compute<T>>();
    for_each_task(executor, tasks.count(), [&](Index task, Index worker) {
      const auto [s, head, part] = tasks[task];
      const Sequence sequence = sequences[s];
      const auto plan = call.plan(sequence);
      BlockStorage storage;
      SoftmaxBlockArgs<Compute<T>> args = call.args(sequence, head, out, saved);
      // Last block first: under a causal pattern it has the most keys, and the end of the schedule
      // should be made of small blocks.
      args.block = plan.block(plan.block_count() - 1 - part, storage);
      args.scratch = scratch.data<Compute<T>>() + worker * slot;
      table.softmax_block(args);
    });
  }
};

FOVEA_NAMESPACE_END
