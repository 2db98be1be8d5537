// SPDX-License-Identifier: MIT
/// \file
/// One cell of the comparison: an operator at one length, timed and checked.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare_input.hpp"
#include "bench/machine.hpp"
#include "bench/operator_entry.hpp"
#include "bench/probe.hpp"
#include "bench/stopwatch.hpp"

namespace bench {

/// Rows of each head that are compared with the truth.
inline constexpr Index kErrorRows = 16;

/// A row of the table.
struct Row {
  Names names;
  Index n = 0;
  std::string skipped;  ///< why it was not run; empty: it was
  int runs = 0;
  double seconds = 0;         ///< median of one pass
  double least_seconds = 0;   ///< of the fastest run
  double useful_gflops = 0;   ///< of the matrix products of the visible pairs
  double peak_fraction = 0;   ///< of the FMA peak measured before and after, times the threads
  double cpu_seconds = 0;     ///< mean of one pass, all threads
  double cpu_share = 0;       ///< of the threads; the rest of the time the machine was busy
  Index workspace_bytes = 0;  ///< of the call, without inputs and output; all that a decoder holds
  Error error;                ///< against the truth of the same operator
  /// Speed against full attention, and |out - full| / |full|, of forward passes; none if full
  /// attention was not run.
  std::optional<double> speed_up;
  std::optional<double> difference;
};

/// Full attention at one length, which the others are measured against.
struct Yardstick {
  double seconds = 0;
  std::vector<float> out;
};

/// |a - b| / |b|, Euclidean.
inline double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += gap * gap;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

/// Seconds of runs of f: at least `repeat` of them, and for at least 0.2 s; sorted.
template <class F>
std::vector<double> timed_runs(int repeat, const F& f) {
  constexpr double least_seconds = 0.2;
  std::vector<double> times;
  const Stopwatch watch;
  while (static_cast<int>(times.size()) < repeat || watch.seconds() < least_seconds) {
    times.push_back(seconds_of(f));
  }
  std::sort(times.begin(), times.end());
  return times;
}

/// What an entry reads of the first n positions.
inline Inputs<float> inputs_of(const Entry& entry, const HeadTensors& tensors, Index n) {
  const Inputs<float> in = last_rows(tensors.first(n), entry.queries(n));
  return entry.sketch.width > 0 ? tensors.sketch.beside(in) : in;
}

/// Runs a cell. \param out takes its output [H, N, Dv]
/// \pre the sketch of the tensors is that of the first n positions
inline Row measure(const Entry& entry, const HeadTensors& tensors, Index n, int repeat,
                   ThreadPool& pool, std::vector<float>& out) {
  const Inputs<float> in = inputs_of(entry, tensors, n);
  const AttentionShape shape = fovea::shape_of(in);
  const Runner<float>& runner = entry.f32;
  const int threads = pool.concurrency();
  Row row;
  row.names = entry.names;
  row.n = n;
  row.workspace_bytes = runner.workspace_bytes(shape, threads);
  if (row.workspace_bytes > available_bytes()) {
    row.skipped = "its scratch is larger than the free memory";
    return row;
  }
  const Shape to = {1, shape.query_heads, shape.queries, shape.value_width};
  out.assign(static_cast<std::size_t>(to[1] * to[2] * to[3]), 0.0f);
  const Prepared pass = runner.prepare(in, View<float>(out.data(), to));
  const double peak_before = fma_peak<float>();
  pass.run(pool);
  const Stopwatch wall;
  const CpuStopwatch cpu;
  const std::vector<double> times = timed_runs(repeat, [&] { pass.run(pool); });
  if (pass.decoder_bytes) row.workspace_bytes = pass.decoder_bytes();
  row.cpu_share = cpu.share(wall.seconds(), threads);
  row.cpu_seconds = cpu.seconds() / static_cast<double>(times.size());
  const double peak = (peak_before + fma_peak<float>()) / 2 * threads;
  row.runs = static_cast<int>(times.size());
  row.seconds = times[times.size() / 2];
  row.least_seconds = times.front();
  const double flops = entry.flops(shape);
  row.useful_gflops = flops / row.seconds * 1e-9;
  row.peak_fraction = flops / row.seconds / peak;
  row.error = pass.error(kErrorRows);
  return row;
}

}  // namespace bench
