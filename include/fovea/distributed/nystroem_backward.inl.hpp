// SPDX-License-Identifier: MIT
/// \file
/// Included by nystroem_backward.hpp, where it is documented.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <string>

#include "fovea/attention/nystroem/product_gradients.hpp"
#include "fovea/distributed/nystroem_backward.hpp"
#include "fovea/distributed/nystroem_forward.inl.hpp"
#include "fovea/distributed/shared_rows/keys_backward.hpp"
#include "fovea/distributed/shared_rows/queries_backward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass.
template <class T>
class NystroemBackwardPass final : public RankPass {
 public:
  /// Allocates all memory except that for rows with a large lse.
  /// \param inputs, out, saved, d_out, grads this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  NystroemBackwardPass(const NystroemInputs<T>& inputs, const NystroemOptions& options,
                       const View<const T>& out, const NystroemSaved<T>& saved,
                       const View<const T>& d_out, const NystroemGrads<T>& grads,
                       const Sharding& rows, const ExecutorRef& executor)
      : grads_(grads),
        rows_(rows),
        landmarks_(inputs, options, saved.of_landmarks(), saved.has_landmarks(), rows, executor),
        gradients_(products(), options, executor),
        last_(products().last_inputs(inputs.q), landmarks_.softmax_options(), out, {saved.lse},
              d_out, {grads.q, gradients_.d_k_means(), gradients_.d_products()}, rows, executor),
        over_keys_(products().key_inputs(inputs.k, inputs.v), landmarks_.softmax_options(),
                   View<const T>(products().landmark_values()), {products().landmark_lse()},
                   gradients_.d_values(), {gradients_.d_q_means(), grads.k, grads.v}, rows,
                   executor) {
    products().reserve(gradients_.kernel_lse(), executor);
    gradients_.take_scratch(executor);
  }
  NystroemBackwardPass(const NystroemBackwardPass&) = delete;
  NystroemBackwardPass& operator=(const NystroemBackwardPass&) = delete;

  /// Writes the gradients of this rank's rows. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error = landmarks_.run(executor);
    const auto then = [&](const std::exception_ptr& later) {
      if (!error) error = later;
    };
    then(last_.run(executor));
    if (!error) {
      then(fovea::detail::caught([&] {
        gradients_.look_at_lse(executor);
        gradients_.compute(executor);
      }));
    }
    then(over_keys_.run(executor));
    if (!error) then(fovea::detail::caught([&] { add_means(executor); }));
    return error;
  }

 private:
  NystroemProducts<T>& products() { return landmarks_.products(); }
  /// Query heads, followed by key heads.
  Index heads() { return products().shape.query_heads + products().shape.key_heads; }

  /// Adds the gradients of the landmarks to those of this rank's rows.
  void add_means(const ExecutorRef& executor) {
    const Index m = products().landmarks();
    const Index batch = products().shape.batch;
    for_each_task(executor, batch * heads() * m, [&](Index task, Index) {
      const Index b = task / m / heads();
      const Index h = task / m % heads();
      if (gradients_.rows_of_mean(b, h) > 0) gradients_.find_row_gradient(b, h, task % m);
    });
    for_each_task(executor, batch * heads(),
                  [&](Index task, Index) { add_to_head(task / heads(), task % heads()); });
  }

  void add_to_head(Index b, Index h) {
    const Index query_heads = products().shape.query_heads;
    const View<T>& to = h < query_heads ? grads_.q : grads_.k;
    const Index of_mean = gradients_.rows_of_mean(b, h);
    if (to.empty() || of_mean == 0) return;
    Index place = 0;
    for (const Range& range : rows_.own()) {
      const Index end = (std::min)(range.end, of_mean * products().landmarks());
      for (Index row = range.begin; row < end;) {
        const Index n = row / of_mean;
        const Index count = (std::min)((n + 1) * of_mean, end) - row;
        const Index at = place + row - range.begin;
        fovea::detail::add_to_segment(
            fovea::detail::head_matrix(to, b, h < query_heads ? h : h - query_heads, at), count,
            products().shape.width, gradients_.row_gradient(b, h, n));
        row += count;
      }
      place += range.end - range.begin;
    }
  }

  NystroemGrads<T> grads_;
  const Sharding& rows_;
  ShardedLandmarks<T> landmarks_;
  NystroemProductGradients<T> gradients_;
  SharedKeysBackward<T> last_;
  SharedQueriesBackward<T> over_keys_;
};

template <std::floating_point T>
CommStats DistributedBackward<NystroemAttention, T>::backward(
    const NystroemAttention& op, const NystroemInputs<T>& inputs, const View<const T>& out,
    const NystroemSaved<T>& saved, const View<const T>& d_out, const NystroemGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  std::string text = detail::call_text(op.name(), ".backward", inputs, rows);
  if (saved.has_landmarks()) text.append(", landmarks saved");
  return detail::run_call(
      rows, call, text,
      [&] {
        detail::check_nystroem(op, inputs, rows, [&](const NystroemInputs<T>& own) {
          op.check_backward_tensors(own, out, saved, d_out, grads);
        });
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<NystroemBackwardPass<T>>(inputs, op.options, out, saved, d_out,
                                                         grads, rows, threads);
      });
}

FOVEA_RANKS_PASSES(BACKWARD, NystroemAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
