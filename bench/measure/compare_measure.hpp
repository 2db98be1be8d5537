// SPDX-License-Identifier: MIT
/// \file
/// One cell of the comparison: an operator at one length, timed and checked.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "bench/entries/operator_entry.hpp"
#include "bench/io/compare_input.hpp"
#include "bench/io/human.hpp"
#include "bench/measure/machine.hpp"
#include "bench/measure/probe.hpp"
#include "bench/measure/row.hpp"
#include "bench/measure/stopwatch.hpp"

namespace bench {

/// |a - b| / |b|, Euclidean.
template <class T>
double relative_distance(const std::vector<T>& a, const std::vector<T>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += gap * gap;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

/// Full attention at one length, causal and not, which the others are measured against: like with
/// like. The first full attention of a kind is the measure of its kind.
template <class T>
class Yardsticks {
 public:
  /// Compares a row that was measured; other passes than forward ones are left alone.
  void compare(const Entry& entry, const std::vector<T>& out, Row& row) {
    const Pass pass = entry.names.pass;
    if (pass != Pass::forward && pass != Pass::dense_mask) return;
    Yardstick& full = of_kind_[entry.causal ? 1 : 0];
    if (full.label.empty() && entry.names.op == "full") {
      full = {entry.names.label, row.seconds, out};
    }
    if (full.label.empty()) return;
    row.yardstick = full.label;
    row.speed_up = full.seconds / row.seconds;
    row.difference = relative_distance(out, full.out);
  }

 private:
  struct Yardstick {
    std::string label;
    double seconds = 0;
    std::vector<T> out;
  };
  std::array<Yardstick, 2> of_kind_;  // not causal, causal
};

/// Seconds of runs of f: at least `repeat` of them, and for at least 0.1 s if the build is one to
/// measure; sorted. A third fewer if the first took over 1.5 s: a few such cells would otherwise be
/// half of the table's time.
/// \param first the time of a preceding run with cold caches; it is used if it was much longer than
/// filling them
template <class F>
std::vector<double> timed_runs(int repeat, const F& f, double first = 0) {
#if defined(FOVEA_QUICK_BUILD)
  constexpr double least_seconds = 0;
#else
  constexpr double least_seconds = 0.1;
#endif
  constexpr double long_run = 0.5;
  constexpr double longest_run = 1.5;
  if (first > longest_run) repeat -= repeat / 3;
  std::vector<double> times;
  if (first > long_run) times.push_back(first);
  const Stopwatch watch;
  while (static_cast<int>(times.size()) < repeat || watch.seconds() < least_seconds) {
    times.push_back(seconds_of(f));
  }
  std::sort(times.begin(), times.end());
  return times;
}

/// What an entry reads of the first n positions.
template <class T>
AllInputs<T> inputs_of(const Entry& entry, const HeadTensorsOf<T>& tensors, Index n) {
  const AllInputs<T> in = last_rows(tensors.first(n), entry.queries(n));
  return entry.sketch.width > 0 ? tensors.sketch.beside(in) : in;
}

namespace detail {

/// Runs a cell. \param row takes what is measured; what is known before is there
template <class T>
void run_cell(const Entry& entry, const AllInputs<T>& in, int repeat, ThreadPool& pool,
              std::vector<T>& out, Row& row) {
  const AttentionShape shape = fovea::shape_of(in);
  const Runner<T>& runner = entry.template runner<T>();
  const int threads = pool.concurrency();
  const Shape to = {1, shape.query_heads, shape.queries, shape.value_width};
  out.assign(static_cast<std::size_t>(to[1] * to[2] * to[3]), T{0});
  const Prepared pass = runner.prepare(in, View<T>(out.data(), to));
  PeakSample peak;
  peak.add(fma_burst<T>());
  const Stopwatch wall;
  const CpuStopwatch cpu;
  int passes = 1;
  const double first = seconds_of([&] { pass.run(pool); });
  const auto run = [&] {
    pass.run(pool);
    ++passes;
  };
  const std::vector<double> times = timed_runs(repeat, run, first);
  if (pass.decoder_bytes) row.workspace_bytes = pass.decoder_bytes();
  row.cpu_share = cpu.share(wall.seconds(), threads);
  row.cpu_seconds = cpu.seconds() / passes;
  peak.add(fma_burst<T>());
  row.runs = static_cast<int>(times.size());
  row.seconds = times[(times.size() - 1) / 2];
  row.least_seconds = times.front();
  const double flops = entry.flops(shape);
  row.useful_gflops = flops / row.seconds * 1e-9;
  row.peak_fraction = flops / row.seconds / (peak.best() * threads);
  row.sustained_fraction = flops / row.seconds / (peak.sustained() * threads);
  row.error = pass.error(kErrorRows);
}

/// Why a cell is not worth trying, or nothing.
inline std::string obstacle_of(const Entry& entry, const AttentionShape& shape,
                               Index workspace_bytes) {
  const std::string obstacle = entry.obstacle ? entry.obstacle(shape) : std::string();
  if (!obstacle.empty() || workspace_bytes <= available_bytes()) return obstacle;
  return "its scratch is larger than the free memory: " +
         human_bytes(static_cast<double>(workspace_bytes));
}

}  // namespace detail

/// A row of which nothing was measured yet.
inline Row row_of(const Entry& entry, Index n) {
  Row row;
  row.names = entry.names;
  row.causal = entry.causal || entry.names.pass == Pass::decode;
  row.n = n;
  return row;
}

/// Runs a cell. One that cannot run, or throws, is marked: it does not take the others with it.
/// \param out takes its output [H, N, Dv]
/// \pre the sketch of the tensors is that of the first n positions
template <class T>
Row measure(const Entry& entry, const HeadTensorsOf<T>& tensors, Index n, int repeat,
            ThreadPool& pool, std::vector<T>& out) {
  Row row = row_of(entry, n);
  try {
    const Runner<T>& runner = entry.template runner<T>();
    if (!runner.prepare) {
      row.skipped = "not measured in double";
      return row;
    }
    const AllInputs<T> in = inputs_of(entry, tensors, n);
    const AttentionShape shape = fovea::shape_of(in);
    row.workspace_bytes = runner.workspace_bytes(shape, pool.concurrency());
    row.skipped = detail::obstacle_of(entry, shape, row.workspace_bytes);
    if (row.skipped.empty()) detail::run_cell(entry, in, repeat, pool, out, row);
  } catch (const std::bad_alloc&) {
    row.skipped = "not enough memory";
    row.failed = true;
  } catch (const std::exception& error) {
    row.skipped = error.what();
    row.failed = true;
  }
  return row;
}

}  // namespace bench
