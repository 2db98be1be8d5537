// SPDX-License-Identifier: MIT
/// \file
/// Included by nystroem_forward.hpp, where it is documented.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "fovea/attention/nystroem/product_gradients.hpp"
#include "fovea/attention/nystroem/products.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/core/view.hpp"
#include "fovea/distributed/nystroem_forward.hpp"
#include "fovea/distributed/segments/range_sums.hpp"
#include "fovea/distributed/shared_rows/keys.hpp"
#include "fovea/distributed/shared_rows/queries_backward.hpp"
#include "fovea/distributed/shared_rows/queries_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The means of all heads of a tensor, computed on all ranks.
template <class T>
class LandmarkMeans {
 public:
  /// Allocates all memory.
  /// \param x [B, H, own rows, D]   \param lengths of all sequences, or none: all rows are tokens
  /// \param landmarks of each sequence, which divide its tokens
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LandmarkMeans(const View<const T>& x, IndexSpan lengths, Index landmarks, const Sharding& rows,
                const ExecutorRef& executor)
      : x_(x),
        lengths_(lengths),
        landmarks_(landmarks),
        rows_(rows.count()),
        means_(rows.ranks(), rows.layout(), heads(), (landmarks + 1) * x.width(), 1,
               (std::max)(worker_count(executor, heads()), Index{1})) {}
  LandmarkMeans(const LandmarkMeans&) = delete;
  LandmarkMeans& operator=(const LandmarkMeans&) = delete;

  /// Computes them. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    return means_.run([&](const ScanStep& scan_step, Index head, T* means,
                          Index /*worker*/) { add(scan_step, head, means); },
                      executor);
  }

  /// The means of a head, [m, D]; those of a sequence without tokens are 0. \pre run was called
  const T* of(Index b, Index h) { return means_.of(b * x_.heads() + h); }

 private:
  Index heads() const { return x_.batch() * x_.heads(); }

  /// Adds the rows of a range to the means of a head. Rows are summed in reduction blocks from a
  /// segment's first row on; a block may continue in the next range.
  void add(const ScanStep& scan_step, Index head, T* means) {
    const Index b = head / x_.heads();
    const Index tokens = lengths_.value_or(b, rows_);
    const Index of_segment = tokens / landmarks_;
    const Index end = (std::min)(scan_step.rows.end, tokens);
    T* const scan = means + landmarks_ * x_.width();
    for (Index row = scan_step.rows.begin; row < end;) {
      const Index first = row / of_segment * of_segment;
      const Index chain_end =
          first + (std::min)(of_segment, ((row - first) / kReductionBlock + 1) * kReductionBlock);
      const Index count = (std::min)(chain_end, end) - row;
      if ((row - first) % kReductionBlock == 0) std::fill_n(scan, x_.width(), T{0});
      fovea::detail::add_segment(
          fovea::detail::head_matrix(x_, b, head % x_.heads(),
                                     scan_step.first + row - scan_step.rows.begin),
          count, x_.width(), scan);
      row += count;
      if (row < chain_end) return;
      T* const mean = means + first / of_segment * x_.width();
      for (Index c = 0; c < x_.width(); ++c) mean[c] += scan[c];
      if (row < first + of_segment) continue;
      for (Index c = 0; c < x_.width(); ++c) mean[c] /= static_cast<T>(of_segment);
    }
  }

  View<const T> x_;
  IndexSpan lengths_;
  Index landmarks_;
  Index rows_;          // of the sequence
  RangeSums<T> means_;  // of a head: [m, D], and the open reduction block [D]
};

/// The landmarks of both passes.
template <class T>
class ShardedLandmarks {
 public:
  /// Allocates all memory.
  /// \param inputs of this rank's rows, checked
  /// \param saved its landmark tensors, which are written or, if `is_saved`, read
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ShardedLandmarks(const NystroemInputs<T>& inputs, const NystroemOptions& options,
                   const NystroemSaved<T>& saved, bool is_saved, const Sharding& rows,
                   const ExecutorRef& executor)
      : products_(whole_shape(inputs, rows), inputs.key_lengths, options, saved,
                  memory_of(executor)),
        q_means_(inputs.q, inputs.key_lengths, options.landmarks, rows, executor),
        k_means_(inputs.k, inputs.key_lengths, options.landmarks, rows, executor) {
    if (is_saved) return;
    over_keys_.emplace(products_.key_inputs(inputs.k, inputs.v), softmax_options(),
                       products_.landmark_values(), SoftmaxSaved<T>{products_.landmark_lse()}, rows,
                       executor);
  }

  /// The landmarks.
  NystroemProducts<T>& products() { return products_; }
  /// Options of every softmax.
  SoftmaxOptions softmax_options() const { return {.scale = static_cast<double>(products_.scale)}; }

  /// Computes the means, W, A and U. All messages are exchanged even if computing throws.
  /// \pre the products have reserved their memory   \returns the exception that computing threw, or
  /// null
  std::exception_ptr run(const ExecutorRef& executor) {
    std::exception_ptr error = q_means_.run(executor);
    const auto then = [&](const std::exception_ptr& later) {
      if (!error) error = later;
    };
    then(k_means_.run(executor));
    copy_means();
    if (over_keys_) then(over_keys_->run(executor));
    if (!error) then(fovea::detail::caught([&] { products_.compute(executor); }));
    return error;
  }

 private:
  static AttentionShape whole_shape(const NystroemInputs<T>& inputs, const Sharding& rows) {
    AttentionShape shape = shape_of(inputs);
    shape.queries = shape.keys = rows.count();
    return shape;
  }

  void copy_means() {
    const AttentionShape& shape = products_.shape;
    const Index group = fovea::detail::group_size(shape.query_heads, shape.key_heads);
    const Index elements = products_.landmarks() * shape.width;
    for (Index b = 0; b < shape.batch; ++b) {
      for (Index h = 0; h < shape.query_heads; ++h) {
        std::copy_n(q_means_.of(b, h), elements, products_.q_means_of(b, h));
        std::copy_n(k_means_.of(b, h / group), elements, products_.k_means_of(b, h));
      }
    }
  }

  NystroemProducts<T> products_;
  LandmarkMeans<T> q_means_;
  LandmarkMeans<T> k_means_;
  std::optional<SharedQueriesForward<T>> over_keys_;  // empty if it was saved
};

/// One forward pass.
template <class T>
class NystroemForwardPass final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param call checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  NystroemForwardPass(const ShardedForwardCall<NystroemAttention, T>& call,
                      const ExecutorRef& executor)
      : landmarks_(call.inputs, call.op.options, call.saved, false, call.rows, executor),
        last_(landmarks_.products().last_inputs(call.inputs.q), landmarks_.softmax_options(),
              call.out, {call.saved.lse}, call.rows, executor) {
    landmarks_.products().reserve({}, executor);
  }

  /// Computes this rank's rows. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    const std::exception_ptr error = landmarks_.run(executor);
    return error ? error : last_.run(executor);
  }

 private:
  ShardedLandmarks<T> landmarks_;
  SharedKeysForward<T> last_;
};

namespace detail {

/// Checks this rank's arguments. \throws std::invalid_argument
template <class Call, class Check>
void check_nystroem(const Call& call, const Check& check_tensors) {
  check_call(call, check_tensors);
  call.op.check_sequence(call.rows.count(), call.rows.count(), call.inputs.key_lengths);
}

}  // namespace detail

template <std::floating_point T>
CommStats forward(const ShardedForwardCall<NystroemAttention, T>& call) {
  const auto check = [&] {
    detail::check_nystroem(call, [&](const NystroemInputs<T>& own) {
      call.op.check_tensors(own, call.out, call.saved);
    });
  };
  return detail::run_call(call, detail::call_text(call), check, [&](const ExecutorRef& threads) {
    return std::make_unique<NystroemForwardPass<T>>(call, threads);
  });
}

FOVEA_RANKS_PASSES(FORWARD, NystroemAttention)

/// One backward pass.
template <class T>
class NystroemBackwardPass final : public RankPass {
 public:
  /// Allocates all memory except that for rows with a large lse.
  /// \param call checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  NystroemBackwardPass(const ShardedBackwardCall<NystroemAttention, T>& call,
                       const ExecutorRef& executor)
      : grads_(call.grads),
        rows_(call.rows),
        landmarks_(call.inputs, call.op.options, call.saved.of_landmarks(),
                   call.saved.has_landmarks(), rows_, executor),
        gradients_(products(), call.op.options, executor),
        last_(products().last_inputs(call.inputs.q), landmarks_.softmax_options(), call.out,
              {call.saved.lse}, call.d_out,
              {grads_.q, gradients_.d_k_means(), gradients_.d_products()}, rows_, executor),
        over_keys_(products().key_inputs(call.inputs.k, call.inputs.v),
                   landmarks_.softmax_options(), View<const T>(products().landmark_values()),
                   {products().landmark_lse()}, gradients_.d_values(),
                   {gradients_.d_q_means(), grads_.k, grads_.v}, rows_, executor) {
    products().reserve(gradients_.kernel_lse(), executor);
    gradients_.take_scratch(executor);
  }

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

  const NystroemGrads<T>& grads_;
  const Sharding& rows_;
  ShardedLandmarks<T> landmarks_;
  NystroemProductGradients<T> gradients_;
  SharedKeysBackward<T> last_;
  SharedQueriesBackward<T> over_keys_;
};

template <std::floating_point T>
CommStats backward(const ShardedBackwardCall<NystroemAttention, T>& call) {
  std::string text = detail::call_text(call);
  if (call.saved.has_landmarks()) text.append(", landmarks saved");
  const auto check = [&] {
    detail::check_nystroem(call, [&](const NystroemInputs<T>& own) {
      call.op.check_backward_tensors(own, call.out, call.saved, call.d_out, call.grads);
    });
  };
  return detail::run_call(call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<NystroemBackwardPass<T>>(call, threads);
  });
}

FOVEA_RANKS_PASSES(BACKWARD, NystroemAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
