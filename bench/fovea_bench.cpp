// SPDX-License-Identifier: MIT
/// \file
/// Every operator under Google Benchmark. A name is
/// `<operator>/<pass>/<type>/<variant>[,heads:<h>][,threads:<n>]/D:<D>/N:<N>`; B = 1, 8 heads and
/// one thread unless it says otherwise. A row whose label says `other` runs in turns with that, and
/// time_over_other divides their times (CPU times, of all threads). ns_per_token is of a row and
/// head; cycles_per_pair, of choices of keys, of a row, key and head. Medians:
/// --benchmark_repetitions=9 --benchmark_report_aggregates_only.
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
#include <utility>
#include <vector>

#include "bench/entries/operators.hpp"
#include "bench/io/gaussian.hpp"
#include "bench/io/sketch.hpp"
#include "bench/measure/cells.hpp"
#include "bench/measure/machine.hpp"
#include "bench/measure/probe.hpp"
#include "bench/measure/stopwatch.hpp"

namespace {

using namespace bench;

constexpr Index kCheckedRows = 3;  // per head

/// Normal q [1, Hq, queries, D], k, v [1, Hk, N, D], a sketch and an output.
template <class T>
struct Data {
  fovea::Shape q_shape, k_shape;
  std::vector<T> q, k, v, out;
  Sketch<T> sketch;

  Data(const fovea::Shape& queries, const fovea::Shape& keys) : q_shape(queries), k_shape(keys) {
    const auto size = [](const fovea::Shape& s) { return s[1] * s[2] * s[3]; };
    q = gaussians<T>(1, 0, size(q_shape));
    k = gaussians<T>(1, 1, size(k_shape));
    v = gaussians<T>(1, 2, size(k_shape));
    out.assign(q.size(), T(0));
    sketch = {{1, 1, q_shape[2], kSketchWidth},
              {1, 1, k_shape[2], kSketchWidth},
              gaussians<T>(5, 0, q_shape[2] * kSketchWidth),
              gaussians<T>(5, 1, k_shape[2] * kSketchWidth)};
  }

  AllInputs<T> inputs(const SketchWork& reads) const {
    const AllInputs<T> in{View<const T>(q.data(), q_shape), View<const T>(k.data(), k_shape),
                          View<const T>(v.data(), k_shape)};
    return reads.width > 0 ? sketch.beside(in) : in;
  }
  View<T> output() { return View<T>(out.data(), q_shape); }
};

/// The tensors of the benchmark that runs; those of the one before are given back.
template <class T>
Data<T>& data(const Cell& cell) {
  static std::unique_ptr<Data<T>> kept;
  if (!kept || kept->q_shape != cell.q_shape() || kept->k_shape != cell.k_shape()) {
    kept.reset();
    kept = std::make_unique<Data<T>>(cell.q_shape(), cell.k_shape());
  }
  return *kept;
}

/// Tells on a terminal which benchmark begins: Google Benchmark prints only what is done.
class Progress {
 public:
  void expect(std::size_t total) { total_ = total; }

  void begin(const std::string& name) {
    if (isatty(2) == 0 || !seen_.insert(name).second) return;
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

/// The sampled error of a cell, computed the first time it runs; none of a row that is not checked.
const Error& checked(const Cell& cell, const Prepared& pass, ThreadPool& pool) {
  static std::map<std::string, Error> done;
  const auto found = done.find(cell.name);
  if (found != done.end()) return found->second;
  pass.run(pool);
  return done[cell.name] = pass.error ? pass.error(kCheckedRows) : Error{};
}

/// Bytes of the inputs, each read once; of a decoding step those of the keys and values that it
/// sees, in their storage, and of the states of a far field. Plans read none.
template <class T>
Index input_bytes(const Cell& cell) {
  if (cell.entry->names.pass == Pass::plan) return 0;
  const AttentionShape shape = cell.shape();
  const Index width = shape.width + shape.value_width;
  if (cell.entry->names.pass == Pass::decode) {
    const Index keys = cell.entry->attended_pairs(shape) * shape.key_heads / shape.query_heads;
    const FarWork& far_field = cell.entry->far_field;
    const Index states =
        shape.key_heads * (far_field.maps + far_field.deltas) * shape.width * shape.value_width;
    return (keys * width + states + shape.keys * cell.entry->sketch.width) *
           (cell.entry->names.storage.empty() ? Index{sizeof(T)} : Index{2});
  }
  const Index sketch = (shape.keys + shape.queries) * cell.entry->sketch.width;
  if (cell.entry->names.pass == Pass::select) return sketch * Index{sizeof(T)};
  return (shape.key_heads * shape.keys * width + shape.query_heads * shape.queries * shape.width +
          sketch) *
         Index{sizeof(T)};
}

/// The times of one repetition.
struct Times {
  double seconds = 0;      ///< wall time
  double cpu_seconds = 0;  ///< of all threads
  double cpu_share = 0;    ///< of the threads
  double over_other = 0;   ///< median of the ratios of the CPU times of a pass and the other one
};

/// What was measured of one repetition. The limits are of one thread.
struct Measured {
  Times times;
  PeakSample peak;
  double bandwidth;  ///< bytes per second
};

Times time_alone(benchmark::State& state, const Prepared& pass, ThreadPool& pool) {
  const Stopwatch wall;
  const CpuStopwatch cpu;
  for (auto _ : state) {
    pass.run(pool);
    benchmark::ClobberMemory();
  }
  const double seconds = wall.seconds();
  return {seconds, cpu.seconds(), cpu.share(seconds, pool.concurrency())};
}

/// In turns with the pass that it is compared with, whose time does not count.
Times time_in_turns(benchmark::State& state, const Prepared& pass, ThreadPool& pool) {
  Times times;
  std::vector<double> ratios;
  pass.other(pool);
  for (auto _ : state) {
    const Stopwatch wall;
    const CpuStopwatch cpu;
    pass.run(pool);
    benchmark::ClobberMemory();
    const double cpu_seconds = cpu.seconds();
    times.seconds += wall.seconds();
    times.cpu_seconds += cpu_seconds;
    state.PauseTiming();
    const CpuStopwatch other;
    pass.other(pool);
    ratios.push_back(cpu_seconds / std::max(other.seconds(), 1e-9));
    state.ResumeTiming();
  }
  std::sort(ratios.begin(), ratios.end());
  times.cpu_share = std::min(1.0, times.cpu_seconds / (times.seconds * pool.concurrency()));
  times.over_other = ratios[ratios.size() / 2];
  return times;
}

/// Flops of a cycle at the peak: two units that multiply and add whole vectors. A cycle so defined
/// is one of the clock at which the peak was measured in the same run.
template <class T>
double flops_per_cycle() {
  const fovea::IsaLevel level = fovea::isa_level();
  const Index bytes = level >= fovea::IsaLevel::v4 ? 64 : level == fovea::IsaLevel::v3 ? 32 : 16;
  return 4.0 * static_cast<double>(bytes / Index{sizeof(T)});
}

template <class T>
void count(benchmark::State& state, const Cell& cell, const Prepared& pass, const Measured& m) {
  const AttentionShape shape = cell.shape();
  if (cell.entry->plan_stats) {
    const PlanStats stats = cell.entry->plan_stats(shape);
    state.counters["density"] = stats.density();      // visible of all pairs
    state.counters["useful_share"] = stats.useful();  // visible of computed pairs
  }
  const double threads = cell.family.threads;
  const auto passes = static_cast<double>(state.iterations());
  const Times& t = m.times;
  const double flops = passes * cell.entry->flops(shape);
  const double bytes = passes * static_cast<double>(input_bytes<T>(cell));
  state.counters["useful_gflops"] = flops / t.seconds * 1e-9;
  const double peak = m.peak.best();
  state.counters["peak_gflops"] = peak * threads * 1e-9;
  state.counters["peak_fraction"] = flops / t.seconds / (peak * threads);
  state.counters["sustained_fraction"] = flops / t.seconds / (m.peak.sustained() * threads);
  // On a machine that others use, those fall; this one counts only the time that we computed.
  state.counters["peak_fraction_cpu"] = flops / t.cpu_seconds / peak;
  state.counters["cpu_share"] = t.cpu_share;
  state.counters["read_gbps"] = bytes / t.seconds * 1e-9;
  state.counters["bandwidth_fraction"] = bytes / t.seconds / (m.bandwidth * threads);
  const auto rows = passes * static_cast<double>(shape.query_heads * shape.queries);
  state.counters["ns_per_token"] = t.seconds / rows * 1e9;  // of a head
  if (cell.entry->names.pass == Pass::select) {
    const double cycles = t.cpu_seconds * peak / flops_per_cycle<T>();
    state.counters["cycles_per_pair"] = cycles / (rows * static_cast<double>(shape.keys));
  }
  if (t.over_other > 0) state.counters["time_over_other"] = t.over_other;
  const Index scratch = pass.decoder_bytes
                            ? pass.decoder_bytes()
                            : cell.entry->runner<T>().workspace_bytes(shape, cell.family.threads);
  state.counters["workspace_bytes"] = benchmark::Counter(
      static_cast<double>(scratch), benchmark::Counter::kDefaults, benchmark::Counter::kIs1024);
}

/// One repetition: check (once), probe, time, probe. The limits are those of both probes, times the
/// threads.
template <class T>
void run(benchmark::State& state, const Cell& cell) {
  progress().begin(cell.name);
  ThreadPool pool(cell.family.threads);
  Data<T>& x = data<T>(cell);
  const Prepared pass = cell.entry->runner<T>().prepare(x.inputs(cell.entry->sketch), x.output());
  const Error& error = checked(cell, pass, pool);
  if (!(error.ratio <= kErrorLimit)) {
    char text[200];
    std::snprintf(text, sizeof text,
                  "wrong: |error| is %.3g u A (1 + B), more than %.0f; largest |error| %.3g",
                  error.ratio, kErrorLimit, error.absolute);
    state.SkipWithError(text);
    return;
  }
  const Index bytes = input_bytes<T>(cell);
  PeakSample peak;
  peak.add(fma_burst<T>());
  const double bandwidth = read_bandwidth(bytes);
  pass.run(pool);  // the probe took the caches
  Times times = pass.other ? time_in_turns(state, pass, pool) : time_alone(state, pass, pool);
  times.cpu_seconds = std::max(times.cpu_seconds, 1e-9);
  peak.add(fma_burst<T>());
  const Measured measured{times, peak, (bandwidth + read_bandwidth(bytes)) / 2};
  count<T>(state, cell, pass, measured);
  state.counters["error_ratio"] = error.ratio;
  const std::string verdict = pass.error ? "checked" : "not checked";
  state.SetLabel(pass.other ? verdict + "; other: " + cell.entry->other : verdict);
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

/// Prints facts about the machine. What Debian's library reports about its own build is wrong.
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

/// Whether the user requested another format on stdout.
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
  const std::vector<Cell> all = cells_of(operators());
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
