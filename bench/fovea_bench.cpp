// SPDX-License-Identifier: MIT
/// \file
/// Every operator under Google Benchmark. A name is
/// `<operator>/<pass>/<type>/<variant>[,threads:<n>]/D:<D>/N:<N>`, one thread unless it says
/// otherwise; B = 1, H = 8. Medians: --benchmark_repetitions=9 --benchmark_report_aggregates_only
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gaussian.hpp"
#include "bench/machine.hpp"
#include "bench/operators.hpp"
#include "bench/probe.hpp"
#include "bench/stopwatch.hpp"

namespace {

using namespace bench;

constexpr Index kHeads = 8;
constexpr Index kCheckedRows = 3;  // per head

/// Normal q, k, v [1, kHeads, N, D] and an output.
template <class T>
struct Data {
  fovea::Shape shape;
  std::vector<T> q, k, v, out;

  Data(Index n, Index d) : shape{1, kHeads, n, d} {
    const Index size = kHeads * n * d;
    q = gaussians<T>(1, 0, size);
    k = gaussians<T>(1, 1, size);
    v = gaussians<T>(1, 2, size);
    out.assign(static_cast<std::size_t>(size), T(0));
  }

  Inputs<T> inputs() const {
    return {View<const T>(q.data(), shape), View<const T>(k.data(), shape),
            View<const T>(v.data(), shape)};
  }
  View<T> output() { return View<T>(out.data(), shape); }
  Index input_bytes() const { return Index{3} * static_cast<Index>(q.size() * sizeof(T)); }
};

/// The tensors of the benchmark that runs; those of the one before are given back.
template <class T>
Data<T>& data(Index n, Index d) {
  static std::unique_ptr<Data<T>> kept;
  if (!kept || kept->shape[2] != n || kept->shape[3] != d) {
    kept.reset();
    kept = std::make_unique<Data<T>>(n, d);
  }
  return *kept;
}

/// One benchmark.
struct Cell {
  std::shared_ptr<const Entry> entry;
  Family family;
  Index n;
  std::string name;
};

/// Tells on stderr which benchmark begins: Google Benchmark prints only what is done.
class Progress {
 public:
  void expect(std::size_t total) { total_ = total; }

  void begin(const std::string& name) {
    if (!seen_.insert(name).second) return;
    std::fprintf(stderr, "[%zu/%zu] %s\n", seen_.size(), total_, name.c_str());
  }

 private:
  std::set<std::string> seen_;
  std::size_t total_ = 0;
};

Progress& progress() {
  static Progress the;
  return the;
}

/// The sampled error of a cell, computed the first time it runs.
template <class T>
const Error& checked(const Cell& cell, ThreadPool& pool) {
  static std::map<std::string, Error> done;
  const auto found = done.find(cell.name);
  if (found != done.end()) return found->second;
  Data<T>& x = data<T>(cell.n, cell.family.width);
  const Runner<T>& runner = cell.entry->runner<T>();
  runner.forward(x.inputs(), x.output(), pool);
  return done[cell.name] = sampled_error<T>(x.inputs(), x.output(), kCheckedRows, runner.reference);
}

/// What was measured of one repetition. The limits are of one thread.
struct Measured {
  double seconds;      ///< wall time
  double cpu_seconds;  ///< of all threads
  double cpu_share;    ///< of the threads
  double peak;         ///< flops per second
  double bandwidth;    ///< bytes per second
};

template <class T>
void count(benchmark::State& state, const Cell& cell, const Measured& m) {
  const Data<T>& x = data<T>(cell.n, cell.family.width);
  const AttentionShape shape = fovea::shape_of(x.inputs());
  const double threads = cell.family.threads;
  const auto passes = static_cast<double>(state.iterations());
  const double flops = passes * 2.0 * static_cast<double>(shape.width + shape.value_width) *
                       static_cast<double>(cell.entry->visible_pairs(shape) * kHeads);
  const double bytes = passes * static_cast<double>(x.input_bytes());
  state.counters["useful_gflops"] = flops / m.seconds * 1e-9;
  state.counters["peak_gflops"] = m.peak * threads * 1e-9;
  state.counters["peak_fraction"] = flops / m.seconds / (m.peak * threads);
  // On a machine that others use, the first falls; this one counts only the time that we computed.
  state.counters["peak_fraction_cpu"] = flops / m.cpu_seconds / m.peak;
  state.counters["cpu_share"] = m.cpu_share;
  state.counters["read_gbps"] = bytes / m.seconds * 1e-9;
  state.counters["bandwidth_fraction"] = bytes / m.seconds / (m.bandwidth * threads);
  state.counters["workspace_bytes"] = benchmark::Counter(
      static_cast<double>(cell.entry->runner<T>().workspace_bytes(shape, cell.family.threads)),
      benchmark::Counter::kDefaults, benchmark::Counter::kIs1024);
}

/// One repetition: check (once), probe, time, probe. The limits are the means of the probes before
/// and after, times the threads.
template <class T>
void run(benchmark::State& state, const Cell& cell) {
  progress().begin(cell.name);
  ThreadPool pool(cell.family.threads);
  const Error& error = checked<T>(cell, pool);
  if (!(error.ratio <= kErrorLimit)) {
    char text[200];
    std::snprintf(text, sizeof text,
                  "wrong: |error| is %.3g u A (1 + B), more than %.0f; largest |error| %.3g",
                  error.ratio, kErrorLimit, error.absolute);
    state.SkipWithError(text);
    return;
  }
  Data<T>& x = data<T>(cell.n, cell.family.width);
  const Inputs<T> inputs = x.inputs();
  const View<T> out = x.output();
  const auto& forward = cell.entry->runner<T>().forward;
  const double peak = fma_peak<T>();
  const double bandwidth = read_bandwidth(x.input_bytes());
  forward(inputs, out, pool);  // the probe took the caches
  const Stopwatch wall;
  const CpuStopwatch cpu;
  for (auto _ : state) {
    forward(inputs, out, pool);
    benchmark::ClobberMemory();
  }
  const double seconds = wall.seconds();
  const Measured measured{seconds, std::max(cpu.seconds(), 1e-9),
                          cpu.share(seconds, cell.family.threads), (peak + fma_peak<T>()) / 2,
                          (bandwidth + read_bandwidth(x.input_bytes())) / 2};
  count<T>(state, cell, measured);
  state.counters["error_ratio"] = error.ratio;
  state.SetLabel("checked");
}

std::string name_of(const Entry& entry, const Family& family, Index n) {
  std::string name = entry.names.op + "/forward/";
  name += family.scalar == Scalar::f32 ? "f32/" : "f64/";
  name += entry.names.variant;
  if (family.threads != 1) name += ",threads:" + std::to_string(family.threads);
  return name + "/D:" + std::to_string(family.width) + "/N:" + std::to_string(n);
}

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const Entry& op : operators()) {
    const auto entry = std::make_shared<const Entry>(op);
    for (const Family& family : entry->families) {
      for (const Index n : family.lengths) {
        all.push_back({entry, family, n, name_of(*entry, family, n)});
      }
    }
  }
  return all;
}

/// How many names the filter keeps; all of them where it is no regular expression of ours.
std::size_t matches(const std::vector<Cell>& all, std::string filter) {
  if (filter.empty() || filter == "all") return all.size();
  const bool negative = filter.starts_with('-');
  if (negative) filter.erase(0, 1);
  try {
    const std::regex pattern(filter, std::regex::extended);
    std::size_t count = 0;
    for (const Cell& cell : all) count += std::regex_search(cell.name, pattern) != negative;
    return count;
  } catch (const std::regex_error&) {
    return all.size();
  }
}

/// Prints our own facts. What Debian's library says of its own build is not true of it.
class Reporter : public benchmark::ConsoleReporter {
 public:
  using ConsoleReporter::ConsoleReporter;

  bool ReportContext(const Context& context) override {
    name_field_width_ = context.name_field_width;
    printed_header_ = false;
    prev_counters_.clear();
    for (const auto& [key, value] : machine_facts()) {
      GetErrorStream() << key << ": " << value << '\n';
    }
    GetErrorStream() << std::flush;
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    GetOutputStream() << std::flush;
  }
};

/// Whether the user asked for another format on stdout.
bool wants_console(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    constexpr std::string_view format = "--benchmark_format=";
    if (argument.starts_with(format)) return argument.substr(format.size()) == "console";
  }
  const char* format = std::getenv("BENCHMARK_FORMAT");
  return format == nullptr || std::string_view(format) == "console";
}

}  // namespace

int main(int argc, char** argv) {
  const bool console = wants_console(argc, argv);
  const std::vector<Cell> all = cells();
  for (const Cell& cell : all) {
    benchmark::RegisterBenchmark(cell.name.c_str(), [cell](benchmark::State& state) {
      if (cell.family.scalar == Scalar::f32) run<float>(state, cell);
      if (cell.family.scalar == Scalar::f64) run<double>(state, cell);
    })->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  progress().expect(matches(all, benchmark::GetBenchmarkFilter()));
  for (const auto& [key, value] : machine_facts()) benchmark::AddCustomContext(key, value);
  Reporter reporter(isatty(1) != 0 ? benchmark::ConsoleReporter::OO_ColorTabular
                                   : benchmark::ConsoleReporter::OO_Tabular);
  benchmark::RunSpecifiedBenchmarks(console ? &reporter : nullptr);
  benchmark::Shutdown();
  return 0;
}
