// SPDX-License-Identifier: MIT
/// \file
/// How operators scale over the ranks of MPI: time, bytes sent, time waited and memory, compared
/// with a model. See --help.
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

#include "bench/io/program.hpp"
#include "bench/scale/report.hpp"
#include "fovea/io/output_file.hpp"

namespace {

using namespace bench;

/// One run of the program.
struct Run {
  ScaleArguments asked;
  std::vector<std::string> command;
  Stage at;
  std::vector<System> systems;

  bool is_first() const { return at.ranks.rank() == 0; }
};

void run_memory(const Run& run) {
  if (run.is_first()) {
    std::printf("%d ranks, N = %td, %td heads, D = %td\n%-24s %14s %18s %10s\n",
                run.at.ranks.size(), run.at.rows, run.asked.heads, kWidth, "operator", "memory",
                "own k and v", "seconds");
  }
  std::vector<MemoryResult> results;
  for (const System& system : run.systems) {
    const MemoryResult& r = results.emplace_back(measure_memory(system, run.at, run.asked));
    if (!run.is_first()) continue;
    std::printf("%-24s %14s %18s %10.1f\n", r.name.c_str(), human_bytes(r.peak).c_str(),
                human_bytes(r.keys).c_str(), r.seconds);
    std::fflush(stdout);
  }
  if (run.is_first() && !run.asked.json.empty()) {
    fovea::write_file(run.asked.json, memory_json(results, run.at, run.asked, run.command));
  }
}

void print_titles(const Run& run) {
  const Network& network = run.at.network;
  std::printf("%d ranks, N = %td, %td heads, D = %td, %s passes; ", run.at.ranks.size(),
              run.at.rows, run.asked.heads, kWidth, run.asked.backward ? "backward" : "forward");
  if (run.at.ranks.size() > 1) {
    std::printf("%.1f us per message, %.1f GB/s", network.latency * 1e6, network.bandwidth * 1e-9);
  }
#if !defined(__OPTIMIZE__)
  std::printf("\nThis program was built without optimisation; its times are not representative.");
#endif
  std::printf("\n%-24s %10s %10s %10s %7s %7s %10s %10s %10s %10s\n", "operator", "one, ms",
              "alone, ms", "ranks, ms", "ratio", "best", "sent", "in model", "waited, ms",
              "model, ms");
}

void print(const ScaleResult& r, Basis basis) {
  const std::string in_model = (basis == Basis::exact ? "" : "~") + human_bytes(r.sent_in_model);
  std::printf("%-24s %10.2f %10.2f %10.2f %7.2f %7.2f %10s %10s %10.2f %10.2f\n", r.name.c_str(),
              r.one * 1e3, r.alone * 1e3, r.sharded * 1e3, r.one / r.sharded, r.best_ratio,
              human_bytes(r.sent).c_str(), in_model.c_str(), r.waited * 1e3, r.modelled * 1e3);
  std::fflush(stdout);
}

void write_plots(const std::vector<OutlookOfSystem>& all, const ScaleArguments& asked) {
  for (const SvgPlot& plot : outlook_plots(all, asked)) {
    fovea::write_file(asked.plots + "/" + plot.file + ".svg", svg_text(plot));
  }
}

/// The plots of the JSON of an earlier run.
void draw(ScaleArguments asked) {
  const std::vector<OutlookOfSystem> all = read_outlooks(asked.drawn_file, asked);
  if (asked.plots.empty()) asked.plots = "out";
  make_directory(asked.plots);
  write_plots(all, asked);
}

void run_times(Run& run) {
  const ScaleArguments& asked = run.asked;
  if (run.is_first() && !asked.plots.empty()) {
    make_directory(asked.plots);
    for (const char* kind : {"/scale_time_causal.svg", "/scale_time_not_causal.svg"}) {
      fovea::check_output(asked.plots + kind);
    }
  }
  run.at.network = measured_network(run.at.ranks);
  if (run.is_first()) print_titles(run);
  std::vector<ScaleResult> results;
  for (const System& system : run.systems) {
    const ScaleResult& r = results.emplace_back(measure(system, run.at, asked));
    if (!run.is_first()) continue;
    print(r, system.pass(asked.backward).costs.basis);
  }
  if (!run.is_first()) return;
  const std::vector<OutlookOfSystem> drawn_out = outlooks(run.systems, results, run.at.rows, asked);
  print_outlook(drawn_out, asked);
  if (!asked.json.empty()) {
    fovea::write_file(asked.json, times_json(results, drawn_out, run.at, asked, run.command));
  }
  if (!asked.plots.empty()) write_plots(drawn_out, asked);
}

/// Selects the requested systems, except those that need other sequence lengths.
void choose_systems(Run& run) {
  const ScaleArguments& asked = run.asked;
  std::string left_out;
  for (System& system : all_systems(asked.heads, asked.backward)) {
    if (!asked.takes(system)) continue;
    if (run.at.rows % system.multiple == 0) {
      run.systems.push_back(std::move(system));
    } else {
      left_out += (left_out.empty() ? "" : "; ") + system.look.name + ": N must be a multiple of " +
                  std::to_string(system.multiple);
    }
  }
  if (run.systems.empty() && !left_out.empty()) throw ArgumentError("--rows: " + left_out);
  if (run.systems.empty()) {
    throw ArgumentError("--operator: none " +
                        std::string(asked.backward ? "with a backward pass " : "") +
                        "begins with '" + asked.names.front() + "'");
  }
  if (run.is_first() && !left_out.empty()) std::printf("omitted: %s\n", left_out.c_str());
}

int run_program(int argc, char** argv) {
  const Communicator ranks(MPI_COMM_WORLD);
  Run run{scale_arguments(argc, argv, ranks.rank() == 0), {argv, argv + argc}, {ranks, {}, 0}, {}};
  const ScaleArguments& asked = run.asked;
  if (asked.help) return 0;
  if (!asked.drawn_file.empty()) {
    if (run.is_first()) draw(asked);
    return 0;
  }
  run.at.rows = asked.weak ? asked.rows * ranks.size() : asked.rows;
  if (run.at.rows < 2 * Index{ranks.size()}) {
    throw ArgumentError("--rows: at least two rows per rank are required");
  }
  if (run.is_first() && !asked.json.empty()) fovea::check_output(asked.json);
  choose_systems(run);
  if (asked.memory) {
    run_memory(run);
  } else {
    run_times(run);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int status = exit_status("fovea_scale", [&] { return run_program(argc, argv); });
  // Others may wait for a rank that has failed.
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
