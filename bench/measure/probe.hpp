// SPDX-License-Identifier: MIT
/// \file
/// The limits of this machine, measured with every benchmark: FMA peak and read bandwidth of one
/// thread at the instruction-set level in use. Clocks drift and machines are shared; a fraction of
/// a limit measured a moment ago carries over, GFLOP/s do not.
#pragma once

#include <algorithm>
#include <array>

#include "bench/measure/stopwatch.hpp"
#include "fovea/core/config.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// One level's probes (bench/measure/fma_probe.inl.hpp).
template <class T>
struct Probes {
  Index (*fma_chains)(const T* operands, Index steps, T* sink) noexcept;
  void (*read_all)(const T* data, Index n, T* sink) noexcept;
};

FOVEA_NAMESPACE_END

#define FOVEA_LEVEL_BODY "bench/measure/fma_probe.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace bench {

using fovea::Index;

/// The probes of the level in use.
template <class T>
const fovea::Probes<T>& probes() {
  return FOVEA_AT_LEVEL(fovea::isa_level(), kProbes<T>);
}

/// A short time of multiply-adds and nothing else.
struct FmaSlice {
  double flops;
  double seconds;
};

/// Consecutive slices.
using FmaBurst = std::array<FmaSlice, 10>;

/// Multiply-adds of T on one thread now, in slices of at least half a millisecond.
template <class T>
FmaBurst fma_burst() {
  const T operands[2] = {static_cast<T>(0.999), static_cast<T>(0.001)};
  T sink[64];
  FmaBurst burst;
  Index steps = 1 << 12;
  for (std::size_t slice = 0; slice < burst.size();) {
    Index flops = 0;
    const double seconds =
        seconds_of([&] { flops = probes<T>().fma_chains(operands, steps, sink); });
    if (seconds < 0.5e-3) {
      steps *= 2;
      continue;
    }
    burst[slice++] = {static_cast<double>(flops), seconds};
  }
  return burst;
}

/// The FMA peak of a run, in flops per second, by bursts that are spread over it.
class PeakSample {
 public:
  void add(const FmaBurst& burst) {
    double best = 0;
    for (const FmaSlice& slice : burst) {
      best = std::max(best, slice.flops / slice.seconds);
      flops_ += slice.flops;
      seconds_ += slice.seconds;
    }
    sum_of_bests_ += best;
    ++bursts_;
  }

  /// Of the best slice of each burst, in the mean: a slice lost to another process does not lower
  /// it.
  /// \pre there was a burst
  double best() const { return sum_of_bests_ / bursts_; }

  /// Of all slices: what other processes took from them, they took from the run as well.
  /// \pre there was a burst
  double sustained() const { return flops_ / seconds_; }

 private:
  double sum_of_bests_ = 0;
  double flops_ = 0;
  double seconds_ = 0;
  int bursts_ = 0;
};

/// Bytes per second that one thread reads from a working set of about `bytes` (at least 1 MiB, at
/// most 256 MiB) that was read before: the best of five passes.
inline double read_bandwidth(Index bytes) {
  constexpr Index mib = Index{1} << 20;
  const Index n = std::clamp(bytes / mib, Index{1}, Index{256}) * mib / Index{sizeof(float)};
  // In large pages, as the caches of decoders. Kept: touching new pages costs more than the probe.
  static fovea::Workspace data;
  if (data.size_bytes() < n * Index{sizeof(float)}) {
    data = fovea::Workspace(n, sizeof(float));
    std::fill_n(data.data<float>(), n, 1.0f);
  }
  float sink[64];
  double best = 0;
  for (int pass = 0; pass < 6; ++pass) {
    const double seconds =
        seconds_of([&] { probes<float>().read_all(data.data<float>(), n, sink); });
    if (pass > 0) best = std::max(best, static_cast<double>(n) * sizeof(float) / seconds);
  }
  return best;
}

}  // namespace bench
