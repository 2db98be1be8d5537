// SPDX-License-Identifier: MIT
/// \file
/// What the softmax operators share: checks, scheduling, the call of the kernel. Only the pattern
/// differs.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "fovea/attention/attention.hpp"
#include "fovea/attention/check.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/table.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options that every softmax operator has.
struct SoftmaxOptions {
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
};

/// The calls of a softmax operator `Op`, which has `name()`, `softmax_options()`, `pattern()` and
/// `check_options()`.
/// out[b, h, i] = sum_j softmax_j(scale <q_i, k_j>) v_j over the keys j that the pattern shows to
/// row i and that lie within the batch's key length; +0 for a row that sees none. A NaN or infinity
/// that is visible reaches the row; what is not visible changes no bit. Weights are divided by
/// their sum last, so values of more than max / Nk may overflow. The bits of a row depend on
/// neither threads, batch, heads, strides nor on the rows and keys that it does not see.
/// Cost: 2 (D + Dv) flops per visible pair, memory O(threads block_rows (D + Dv)).
template <class Op>
class SoftmaxOperator {
 public:
  /// \throws std::invalid_argument naming operator, tensor, dimension, expected and got. O(1) (in B
  /// for the key lengths).
  template <class T>
  void check(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved = {}) const {
    op().check_options();
    const SoftmaxOptions options = op().softmax_options();
    constexpr auto most = static_cast<double>(std::numeric_limits<T>::max());
    if (options.scale && !(std::abs(*options.scale) <= most)) {
      refuse(Op::name(), "scale", std::to_string(*options.scale), "finite in the inputs' type");
    }
    check_inputs(Op::name(), inputs);
    check_output(Op::name(), "out", out, inputs,
                 {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), inputs.v.width()});
    if (!saved.lse.is_none()) {
      check_output(Op::name(), "lse", saved.lse, inputs,
                   {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), 1});
      if (shares_elements(out, saved.lse)) {
        refuse(Op::name(), "lse", "in the memory of out", "memory of its own");
      }
    }
  }

  /// \param inputs {q, k, v} or {q, k, v, key_lengths}: views, Eigen tensors or matrices
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

  /// Bytes of scratch of `forward` with that many workers: independent of the number of keys, and
  /// of the number of queries beyond a block.
  template <class T>
  Index workspace_bytes(const AttentionShape& shape, Index workers = 1) const {
    return workers * slot_elements<T>(shape) * static_cast<Index>(sizeof(T));
  }

  /// (query, key) pairs of one head that the pattern shows.
  Index visible_pairs(const AttentionShape& shape) const {
    return op().pattern().plan(sequence(shape)).visible_pairs();
  }

 private:
  const Op& op() const { return static_cast<const Op&>(*this); }

  SequenceShape sequence(const AttentionShape& shape) const {
    return SequenceShape::of(shape.queries, shape.keys, op().softmax_options().alignment);
  }

  /// Elements of one worker's scratch, a multiple of a cache line.
  template <class T>
  static Index slot_elements(const AttentionShape& shape) {
    return softmax_block_scratch(block_rows(shape.queries), shape.width, shape.value_width);
  }

  template <class T>
  double scale(const Inputs<T>& inputs) const {
    const Index d = inputs.q.width();
    if (op().softmax_options().scale) return *op().softmax_options().scale;
    return d == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(d));
  }

  template <class T, class E>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved, E&& executor) const {
    const AttentionShape shape = shape_of(inputs);
    const auto plan = op().pattern().plan(sequence(shape));
    const Index blocks = plan.block_count();
    const Index tasks = shape.batch * shape.query_heads * blocks;
    const Index slot = slot_elements<T>(shape);
    Workspace scratch(worker_count(executor, tasks), slot * static_cast<Index>(sizeof(T)));
    const KernelTable<T>& table = kernels<T>();
    for_each_task(executor, tasks, [&](Index task, Index worker) {
      const Index head = task / blocks;
      const Index b = head / shape.query_heads;
      const Index h = head % shape.query_heads;
      BlockStorage storage;
      SoftmaxBlockArgs<T> args = head_args(inputs, out, saved, b, h);
      // Last block first: under a causal pattern it has the most keys, and the end of the schedule
      // should be made of small blocks.
      args.block = plan.block(blocks - 1 - task % blocks, storage);
      args.scale = static_cast<T>(scale(inputs));
      args.scratch = scratch.data<T>() + worker * slot;
      table.softmax_block(args);
    });
  }

  template <class T>
  static SoftmaxBlockArgs<T> head_args(const Inputs<T>& inputs, const View<T>& out,
                                       const Saved<T>& saved, Index b, Index h) {
    const Index key_head = h / (inputs.q.heads() / inputs.k.heads());
    SoftmaxBlockArgs<T> args;
    args.q = head_matrix(inputs.q, b, h);
    args.k = head_matrix(inputs.k, b, key_head);
    args.v = head_matrix(inputs.v, b, key_head);
    args.out = head_matrix(out, b, h);
    if (!saved.lse.is_none()) args.lse = head_matrix(saved.lse, b, h);
    args.width = inputs.q.width();
    args.value_width = inputs.v.width();
    args.key_end = inputs.key_lengths.empty() ? inputs.k.rows()
                                              : inputs.key_lengths[static_cast<std::size_t>(b)];
    return args;
  }

  template <class T>
  static Matrix<T> head_matrix(const View<T>& x, Index b, Index h) {
    // No arithmetic on the null pointer of an empty tensor.
    if (x.size() == 0) return {x.data(), 0, 1};
    const Shape& s = x.strides();
    // A single column is at unit stride, whatever its stride says.
    return {x.data() + b * s[0] + h * s[1], s[2], x.width() == 1 ? 1 : s[3]};
  }
};

FOVEA_NAMESPACE_END
