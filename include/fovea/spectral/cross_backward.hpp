// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of HiddenStateCross. The gradient of one tensor is a correlation of the
/// incoming gradient with the other tensor, computed by transforms of the forward pass's sizes.
#pragma once

#include "fovea/core/executor_ref.hpp"
#include "fovea/spectral/cross_inputs.hpp"
#include "fovea/spectral/cross_tasks.hpp"

FOVEA_NAMESPACE_BEGIN

/// One call of the backward pass. Each channel takes a transform of N/2 complex elements of the
/// incoming gradient g, and for each requested gradient a transform of N elements of the other
/// tensor, a product, and an inverse transform of N.
template <class T>
class CrossBackward {
 public:
  /// \param inputs as in the forward pass, checked
  /// \param d_out [B, 1, L, C] gradient of the loss with respect to the output
  /// \param grads written
  /// \param planning how FFTW chooses plans
  /// \throws as FftPlan
  CrossBackward(const CrossInputs<T>& inputs, const View<const T>& d_out,
                const CrossGrads<T>& grads, FftPlanning planning)
      : inputs_(inputs),
        d_out_(d_out),
        grads_(grads),
        tasks_(d_out.shape(), inputs.key_lengths, planning, true) {}

  /// The scratch bytes of `run` for sequences of this length and this many workers.
  static Index workspace_bytes(Index length, Index workers) {
    return workers * WorkerScratch(transform_size(length)).size * Index{sizeof(T)};
  }

  /// Computes the gradients that are given.
  /// \throws std::bad_alloc if allocation fails
  void run(const ExecutorRef& executor) const {
    if (d_out_.size() == 0 || (grads_.f1.empty() && grads_.f2.empty())) return;
    const WorkerScratch slot(transform_size(d_out_.rows()));
    Workspace scratch = memory_of(executor).take(worker_count(executor, tasks_.count()),
                                                 slot.size * Index{sizeof(T)});
    for_each_task(executor, tasks_.count(), [&](Index task, Index worker) {
      compute(task, scratch.data<T>() + worker * slot.size);
    });
  }

 private:
  /// Sizes of the parts of a worker's scratch, in elements of T.
  struct WorkerScratch {
    explicit WorkerScratch(const TransformSize& n)
        : block(kCrossChannels<T> * cross_stride(n)),
          half(n.rows * padded_size(n.columns, kRootBlock)),
          size(3 * block + half + (n.rows + 1) * spectrum_row(n)) {}
    Index block;
    Index half;
    Index size;
  };

  void compute(Index task, T* scratch) const {
    const CrossKernels<T> kernels;
    const Index batch = tasks_.batch(task);
    const Index first = tasks_.first_channel(task);
    const Index channels = tasks_.channels(task);
    const CrossPlan<T>* const plan = tasks_.plan(task);
    if (plan == nullptr) {
      scatter(scratch, {}, grads_.f1, batch, first, channels, 0);
      scatter(scratch, {}, grads_.f2, batch, first, channels, 0);
      return;
    }
    const WorkerScratch slot(plan->size);
    const Index n = plan->length;
    T* const g = scratch;
    T* const f1 = g + slot.block;
    T* const f2 = f1 + slot.block;
    T* const g_spectrum = f2 + slot.block;
    T* const z = g_spectrum + slot.half;
    // The last row of the output, n - 1, is constant, so its gradient is omitted.
    kernels.gather_channels(gather_args<T>(d_out_, batch, first, channels, n - 1, g, plan->size));
    const auto gather = [&](const View<T>& grad, const View<const T>& other, T* to) {
      if (!grad.empty())
        kernels.gather_channels(gather_args<T>(other, batch, first, channels, n, to, plan->size));
    };
    gather(grads_.f2, inputs_.f1, f1);
    gather(grads_.f1, inputs_.f2, f2);
    for (Index c = 0; c < channels; ++c) {
      const Index at = c * cross_stride(plan->size);
      transform_gradient(*plan, kernels, g + at, z, g_spectrum);
      if (!grads_.f1.empty()) correlate(*plan, kernels, g + at, f2 + at, g_spectrum, z);
      if (!grads_.f2.empty()) correlate(*plan, kernels, g + at, f1 + at, g_spectrum, z);
    }
    scatter(f2, plan->size, grads_.f1, batch, first, channels, n);
    scatter(f1, plan->size, grads_.f2, batch, first, channels, n);
  }

  static void scatter(const T* from, const TransformSize& size, const View<T>& grad, Index batch,
                      Index first, Index channels, Index count) {
    if (grad.empty()) return;
    CrossKernels<T>().scatter_channels(
        scatter_args<T>(from, size, grad, batch, first, channels, count));
  }

  /// The transform of the N/2 complex numbers g[2i] + i g[2i + 1]. \param work scratch for as many
  static void transform_gradient(const CrossPlan<T>& plan, const CrossKernels<T>& kernels,
                                 const T* g, T* work, T* spectrum) {
    const auto& [rows, columns] = plan.size;
    if (rows == 1) return plan.forward_half->execute(g, spectrum);
    kernels.outer_step({g, work, plan.roots->half(), columns / 2, false});
    for (Index r = 0; r < rows; ++r) {
      plan.forward_half->execute(work + r * columns, spectrum + r * columns);
    }
  }

  /// Computes one gradient of one channel, overwriting the other tensor's channel.
  static void correlate(const CrossPlan<T>& plan, const CrossKernels<T>& kernels, const T* g,
                        T* other, const T* g_spectrum, T* z) {
    const auto& [rows, columns] = plan.size;
    const Index row = plan.row();
    plan.transform(kernels, other, z);
    // The spectra of even and odd elements of both factors are doubled.
    const T scale = 1 / (4 * static_cast<T>(plan.size.size()));
    kernels.correlation({z, g_spectrum, plan.roots->spectrum(), columns, scale});
    for (Index r = rows; r-- > 0;) plan.inverse->execute(z + r * row, z + (r + 1) * row);
    kernels.finish({z + row, row / 2, plan.roots->whole(), columns, true, other, g, other});
  }

  CrossInputs<T> inputs_;
  View<const T> d_out_;
  CrossGrads<T> grads_;
  CrossTasks<T> tasks_;
};

FOVEA_NAMESPACE_END
