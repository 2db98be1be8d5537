// SPDX-License-Identifier: MIT
/// \file
/// Included by nystroem_forward.hpp, where it is documented.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>

#include "fovea/attention/nystroem/products.hpp"
#include "fovea/distributed/nystroem_forward.hpp"
#include "fovea/distributed/shared_rows/keys_forward.hpp"
#include "fovea/distributed/shared_rows/landmark_means.hpp"
#include "fovea/distributed/shared_rows/queries_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

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
  /// \param inputs, out, saved this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  NystroemForwardPass(const NystroemInputs<T>& inputs, const NystroemOptions& options,
                      const View<T>& out, const NystroemSaved<T>& saved, const Sharding& rows,
                      const ExecutorRef& executor)
      : landmarks_(inputs, options, saved, false, rows, executor),
        last_(landmarks_.products().last_inputs(inputs.q), landmarks_.softmax_options(), out,
              {saved.lse}, rows, executor) {
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
template <class T, class Check>
void check_nystroem(const NystroemAttention& op, const NystroemInputs<T>& in, const Sharding& rows,
                    const Check& check_tensors) {
  check_call(op.name(), in, rows, check_tensors);
  op.check_sequence(rows.count(), rows.count(), in.key_lengths);
}

}  // namespace detail

template <std::floating_point T>
CommStats DistributedForward<NystroemAttention, T>::forward(
    const NystroemAttention& op, const NystroemInputs<T>& inputs, const View<T>& out,
    const NystroemSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  return detail::run_call(
      rows, call, detail::call_text(op.name(), ".forward", inputs, rows),
      [&] {
        detail::check_nystroem(op, inputs, rows, [&](const NystroemInputs<T>& own) {
          op.check_tensors(own, out, saved);
        });
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<NystroemForwardPass<T>>(inputs, op.options, out, saved, rows,
                                                        threads);
      });
}

FOVEA_RANKS_PASSES(FORWARD, NystroemAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
