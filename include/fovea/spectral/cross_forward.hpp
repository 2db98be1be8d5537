// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of HiddenStateCross: channels of checked tensors are gathered into scratch,
/// transformed, multiplied, transformed back, and scattered.
#pragma once

#include "fovea/core/executor_ref.hpp"
#include "fovea/spectral/cross_inputs.hpp"
#include "fovea/spectral/cross_tasks.hpp"

FOVEA_NAMESPACE_BEGIN

/// One call of the forward pass. A task gathers two blocks of channels. Then each channel, whose
/// arrays all fit into a second-level cache, takes two transforms of N complex elements, their
/// product, and an inverse transform of N/2. Finally the block is scattered.
///
/// Each FFTW plan transforms one channel. Plans for several channels are slower: under MEASURE,
/// FFTW took 3.1 times as long per channel for 4 interleaved channels (complex, 4096 floats), at
/// least 4.3 times for 8 or 16 channels split into real and imaginary parts, and no less than for
/// single channels for 4 contiguous ones.
template <class T>
class CrossForward {
 public:
  /// \param inputs checked
  /// \param out [B, 1, L, C] is written
  /// \param planning how FFTW chooses plans
  /// \throws as FftPlan
  CrossForward(const CrossInputs<T>& inputs, const View<T>& out, FftPlanning planning)
      : inputs_(inputs), out_(out), tasks_(out.shape(), inputs.key_lengths, planning, false) {}

  /// The scratch bytes of `run` for sequences of this length and this many workers.
  static Index workspace_bytes(Index length, Index workers) {
    return workers * WorkerScratch(transform_size(length)).size * Index{sizeof(T)};
  }

  /// Computes the cross. \throws std::bad_alloc if allocation fails
  void run(const ExecutorRef& executor) const {
    if (out_.size() == 0) return;
    const WorkerScratch slot(transform_size(out_.rows()));
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
          size(2 * block + (2 * n.rows + 1) * spectrum_row(n)) {}
    Index block;
    Index size;
  };

  void compute(Index task, T* scratch) const {
    const CrossKernels<T> kernels;
    const Index batch = tasks_.batch(task);
    const Index first = tasks_.first_channel(task);
    const Index channels = tasks_.channels(task);
    const CrossPlan<T>* const plan = tasks_.plan(task);
    if (plan == nullptr) {
      kernels.scatter_channels(scatter_args<T>(scratch, {}, out_, batch, first, channels, 0));
      return;
    }
    const WorkerScratch slot(plan->size);
    T* const f1 = scratch;
    T* const f2 = f1 + slot.block;
    T* const spectra = f2 + slot.block;
    kernels.gather_channels(
        gather_args<T>(inputs_.f1, batch, first, channels, plan->length, f1, plan->size));
    kernels.gather_channels(
        gather_args<T>(inputs_.f2, batch, first, channels, plan->length, f2, plan->size));
    for (Index c = 0; c < channels; ++c) {
      const Index at = c * cross_stride(plan->size);
      cross(*plan, kernels, f1 + at, f2 + at, spectra);
    }
    // The last row is 0 by eq. 4; 0 is written instead of the transform's rounding noise.
    kernels.scatter_channels(
        scatter_args<T>(f1, plan->size, out_, batch, first, channels, plan->length - 1));
  }

  /// Computes one channel. The result overwrites f1.
  static void cross(const CrossPlan<T>& plan, const CrossKernels<T>& kernels, T* f1, const T* f2,
                    T* spectra) {
    const auto& [rows, columns] = plan.size;
    const Index row = plan.row();
    T* const z1 = spectra;
    T* const z2 = z1 + rows * row;
    plan.transform(kernels, f1, z1);
    plan.transform(kernels, f2, z2);
    // The spectra of the even and odd elements of both factors are doubled.
    const T scale = 1 / (4 * static_cast<T>(plan.size.size()));
    kernels.cross_product({z1, z2, plan.roots->spectrum(), scale});
    for (Index r = 0; r < rows; ++r) plan.inverse_half->execute(z1 + r * row, z2 + r * row);
    kernels.finish({z2, row / 2, plan.roots->half(), columns / 2, false, f1, f2, f1});
  }

  CrossInputs<T> inputs_;
  View<T> out_;
  CrossTasks<T> tasks_;
};

FOVEA_NAMESPACE_END
