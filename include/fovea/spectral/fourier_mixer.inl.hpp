// SPDX-License-Identifier: MIT
/// \file
/// Included by fourier_mixer.hpp, which documents it.
#pragma once

#include <algorithm>
#include <string>

#include "fovea/core/tensor_check.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/spectral/table.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/spectral/fourier_mixer.hpp"
#include "fovea/spectral/mixer_steps.hpp"
#include "fovea/spectral/plan_cache.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Checks the tensors of a mixer. \throws std::invalid_argument
template <class T>
void check_mixer(const char* read, const View<const T>& x, const char* written,
                 const View<T>& out) {
  static_cast<void>(isa_level());
  const Shape& shape = x.shape();
  if (shape[1] != 1) {
    refuse_extent(FourierMixer::name(), read, shape, 1, "1: the mixer has no heads");
  }
  for (const std::size_t d : {std::size_t{2}, std::size_t{3}}) {
    if (shape[d] <= FourierMixer::kMostElements) continue;
    refuse_extent(FourierMixer::name(), read, shape, d,
                  "at most " + std::to_string(FourierMixer::kMostElements) + ", the limit of FFTW");
  }
  check_extents(FourierMixer::name(), written, out.shape(), shape,
                std::string("the shape of ") + read);
  check_written_layout(FourierMixer::name(), written, out);
  check_apart(FourierMixer::name(), written, out, read, x);
}

/// Transforms a block of rows and their mirror images, and distributes the sums to the sequences.
/// \param scratch two rows of complex numbers, and the sums
template <class T>
void transform_rows(const MixerSizes<T>& sizes, const MixerRows<T>& rows, Index b, Index task,
                    T* sequences, T* scratch) {
  const Index first = task * sizes.kRows;
  const Index count = (std::min)(sizes.kRows, sizes.own_rows() - first);
  T* const sums = scratch + 2 * sizes.spectrum();
  for (Index r = 0; r < count; ++r) rows.sum(b, first + r, scratch, sums + r * sizes.sums());
  MixerKernels<T>().unpack_sums({sums, sizes.sums(), first, count, sizes.rows, sizes.width,
                                 sizes.pairs(), sequences, sizes.stride()});
}

}  // namespace detail

template <class T>
void FourierMixer::check(const View<const T>& x, const View<T>& out) const {
  detail::check_mixer("x", x, "out", out);
}

template <class T>
void FourierMixer::check_backward(const View<const T>& d_out, const View<T>& d_x) const {
  detail::check_mixer("d_out", d_out, "the gradient of x", d_x);
}

template <class T>
Index FourierMixer::workspace_bytes(Index length, Index channels, Index workers) const {
  if (length == 0 || channels == 0) return 0;
  const MixerSizes<T> sizes{length, channels};
  const Index busy = (std::min)(workers, (std::max)(sizes.row_tasks(), sizes.pair_tasks()));
  return (sizes.sequences() + busy * sizes.worker()) * Index{sizeof(T)};
}

template <class T>
void FourierMixer::mix(const View<const T>& x, const View<T>& out,
                       const ExecutorRef& executor) const {
  if (out.size() == 0) return;
  constexpr double of_element = 64;  // measured cost, in multiply-adds
  auto&& threads = for_work(executor, [&] { return of_element * static_cast<double>(out.size()); });
  const MixerSizes<T> sizes{x.rows(), x.width()};
  const auto row_plan = fft_plan<T>({sizes.width, FftDirection::forward, options.planning});
  const auto column_plan = fft_plan<T>({sizes.rows, FftDirection::forward, options.planning});
  const Index workers = worker_count(threads, (std::max)(sizes.row_tasks(), sizes.pair_tasks()));
  Workspace scratch =
      memory_of(threads).take(1, (sizes.sequences() + workers * sizes.worker()) * Index{sizeof(T)});
  memory_of(threads).require();
  T* const sequences = scratch.template data<T>();
  const auto of_worker = [&](Index worker) {
    return sequences + sizes.sequences() + worker * sizes.worker();
  };
  const MixerRows<T> rows{*row_plan, x};
  const MixerColumns<T> columns{*column_plan, out};
  for (Index b = 0; b < x.batch(); ++b) {
    for_each_task(threads, sizes.row_tasks(), [&](Index task, Index worker) {
      detail::transform_rows(sizes, rows, b, task, sequences, of_worker(worker));
    });
    for_each_task(threads, sizes.pair_tasks(), [&](Index task, Index worker) {
      const Index first = task * sizes.kPairs;
      const Index count = (std::min)(sizes.kPairs, sizes.pairs() - first);
      columns.mix(b, sequences + first * sizes.stride(), first, count, of_worker(worker));
    });
  }
}

#define FOVEA_MIXER_MEMBERS(Op, T)                                                          \
  template void Op::check<T>(const View<const T>&, const View<T>&) const;                   \
  template void Op::check_backward<T>(const View<const T>&, const View<T>&) const;          \
  template void Op::mix<T>(const View<const T>&, const View<T>&, const ExecutorRef&) const; \
  template Index Op::workspace_bytes<T>(Index, Index, Index) const;
FOVEA_IN_FLOAT_UNIT(FOVEA_MIXER_MEMBERS, FourierMixer)
FOVEA_IN_DOUBLE_UNIT(FOVEA_MIXER_MEMBERS, FourierMixer)

FOVEA_NAMESPACE_END
