// SPDX-License-Identifier: MIT
/// \file
/// How operators scale over the ranks of MPI: time, bytes sent, time waited, beside a model of
/// them. See --help.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bench/io/compare_json.hpp"
#include "bench/io/gaussian.hpp"
#include "bench/io/human.hpp"
#include "bench/io/program.hpp"
#include "bench/scale/systems.hpp"
#include "fovea/io/output_file.hpp"

namespace {

using namespace bench;
using fovea::distributed::Communicator;
using fovea::distributed::Rows;
using fovea::distributed::Traffic;

constexpr std::string_view kHelp =
    R"(fovea_scale: forward passes over a sequence that is spread over ranks, beside one process.
Start it with mpirun -np R fovea_scale. Each rank computes with one thread; one head, D = 64, float32.

usage: fovea_scale [options]
  --rows N         rows of the sequence; with --weak, of each rank   (16384)
  --weak           weak scaling: the sequence grows with the ranks
  --heads H        heads   (1)
  --operator NAME  only the operators whose names begin with this
  --repeat N       calls of each kind, in turns; medians are shown   (7)
  --network B,L    gigabytes a second and microseconds of the network that the model is drawn out to
                   (12.5,2)
  --json FILE      write everything there, too
  --help           this text

Columns: `one` is the operator in one process, rank 0 alone, over the same sequence; `ranks` is from
the first rank's begin to the last one's end; `sent` and `waited` are of the rank with most, and
`in model` is what the model says of `sent` (at most, for Smart Bird and BigBird; on average, for
FSAT). The model
is: the largest share of a rank in the pairs of the pattern times `one`, the bytes of the rank that
sends most over the bandwidth, and a latency for each message on the way; bandwidth and latency are
measured between rank 0 and rank 1 first.
)";

struct Arguments {
  Index rows = 16384;
  Index heads = 1;
  int repeat = 7;
  bool weak = false;
  bool help = false;
  double bandwidth = 12.5e9;  // bytes a second
  double latency = 2e-6;      // seconds
  std::string name;           // of operators, its begin
  std::string json;
};

/// \throws ArgumentError
Arguments parse(int argc, char** argv) {
  Arguments parsed;
  const auto number = [](std::string_view flag, const char* text) {
    char* end = nullptr;
    const double x = std::strtod(text, &end);
    if (end == text || *end != '\0' || !(x >= 1)) {
      throw ArgumentError(std::string(flag) + ": '" + text + "' is no number from 1 on");
    }
    return x;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--help") {
      parsed.help = true;
    } else if (flag == "--weak") {
      parsed.weak = true;
    } else if (flag == "--rows" && has_value) {
      parsed.rows = static_cast<Index>(number(flag, argv[++i]));
    } else if (flag == "--heads" && has_value) {
      parsed.heads = static_cast<Index>(number(flag, argv[++i]));
    } else if (flag == "--repeat" && has_value) {
      parsed.repeat = static_cast<int>(number(flag, argv[++i]));
    } else if (flag == "--operator" && has_value) {
      parsed.name = argv[++i];
    } else if (flag == "--json" && has_value) {
      parsed.json = argv[++i];
    } else if (flag == "--network" && has_value) {
      double gigabytes = 0;
      double microseconds = 0;
      if (std::sscanf(argv[++i], "%lf,%lf", &gigabytes, &microseconds) != 2 || !(gigabytes > 0) ||
          !(microseconds >= 0)) {
        throw ArgumentError("--network: '" + std::string(argv[i]) + "' is not two numbers");
      }
      parsed.bandwidth = gigabytes * 1e9;
      parsed.latency = microseconds * 1e-6;
    } else {
      throw ArgumentError("'" + std::string(flag) + "' is not understood; see --help");
    }
  }
  return parsed;
}

/// Seconds and bytes a second between ranks 0 and 1, the best of several.
struct Network {
  double latency = 0;
  double bandwidth = std::numeric_limits<double>::infinity();
};

Network measured_network(const Communicator& ranks) {
  Network network;
  if (ranks.size() == 1) return network;
  const auto round_trip = [&](std::size_t bytes) {
    std::vector<char> buffer(bytes);
    double best = 1e300;
    for (int i = 0; i < 20 && ranks.rank() < 2; ++i) {
      const double begun = MPI_Wtime();
      const int other = 1 - ranks.rank();
      if (ranks.rank() == 0) {
        MPI_Send(buffer.data(), static_cast<int>(bytes), MPI_CHAR, other, 0, ranks.mpi());
      }
      MPI_Recv(buffer.data(), static_cast<int>(bytes), MPI_CHAR, other, 0, ranks.mpi(),
               MPI_STATUS_IGNORE);
      if (ranks.rank() == 1) {
        MPI_Send(buffer.data(), static_cast<int>(bytes), MPI_CHAR, other, 0, ranks.mpi());
      }
      best = std::min(best, MPI_Wtime() - begun);
    }
    MPI_Bcast(&best, 1, MPI_DOUBLE, 0, ranks.mpi());
    return best / 2;
  };
  network.latency = round_trip(8);
  constexpr std::size_t large = std::size_t{8} << 20;
  network.bandwidth = static_cast<double>(large) / (round_trip(large) - network.latency);
  return network;
}

/// What the model says of N rows on R ranks, where one process takes `one` seconds.
double model(const Costs& costs, double n, double r, double one, const Network& network) {
  const double share = (1 - costs.serial) / r + costs.serial;
  return one * share + costs.bytes(n, r) / network.bandwidth + costs.messages(r) * network.latency;
}

struct Result {
  std::string name;
  double one = 0;
  double spread = 0;
  double best_ratio = 0;
  double sent = 0;
  double sent_in_model = 0;
  double waited = 0;
  double modelled = 0;
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

/// The largest of all ranks.
double most(const Communicator& ranks, double x) {
  MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_MAX, ranks.mpi());
  return x;
}

Result measure(const System& system, const Communicator& ranks, const Network& network, Index n,
               const Arguments& arguments) {
  const Rows rows(ranks, system.layout(n, ranks.size()));
  const auto elements = [&](Index count) { return arguments.heads * count * kWidth; };
  const std::vector<float> own =
      gaussians(1, static_cast<std::uint32_t>(ranks.rank()), elements(rows.own_count()));
  std::vector<float> whole;
  if (ranks.rank() == 0) whole = gaussians(2, 0, elements(n));
  std::vector<float> out(std::max(own.size(), whole.size()));
  const auto shape = [&](Index count) -> fovea::Shape {
    return {1, arguments.heads, count, kWidth};
  };
  Result result;
  std::vector<double> one, spread, waited;
  for (int i = 0; i < arguments.repeat; ++i) {
    MPI_Barrier(ranks.mpi());
    double begun = MPI_Wtime();
    if (ranks.rank() == 0) {
      system.one(fovea::View<const float>(whole.data(), shape(n)),
                 fovea::View<float>(out.data(), shape(n)));
    }
    one.push_back(most(ranks, ranks.rank() == 0 ? MPI_Wtime() - begun : 0));
    MPI_Barrier(ranks.mpi());
    begun = MPI_Wtime();
    const Traffic traffic =
        system.spread(fovea::View<const float>(own.data(), shape(rows.own_count())),
                      fovea::View<float>(out.data(), shape(rows.own_count())), rows);
    spread.push_back(most(ranks, MPI_Wtime() - begun));
    waited.push_back(most(ranks, traffic.seconds_waited));
    result.sent = most(ranks, static_cast<double>(traffic.bytes_sent));
  }
  result.name = system.name;
  result.one = median(one);
  result.spread = median(spread);
  result.best_ratio =
      *std::min_element(one.begin(), one.end()) / *std::min_element(spread.begin(), spread.end());
  result.waited = median(waited);
  result.sent_in_model = system.costs.bytes(static_cast<double>(n), ranks.size());
  result.modelled = model(system.costs, static_cast<double>(n), ranks.size(), result.one, network);
  return result;
}

/// Draws the model out: the share of perfect speed that is left, for strong scaling.
void print_outlook(const std::vector<System>& all, const std::vector<Result>& results, Index n,
                   const Network& network) {
  std::printf(
      "\nThe model, for %.3g GB/s and %.3g us: bytes a token and rank, and speed over one "
      "process, of R ranks\n%-18s %10s",
      network.bandwidth * 1e-9, network.latency * 1e6, "operator", "tokens");
  const double ranks[] = {2, 16, 128, 1024, 4096};
  for (const double r : ranks) std::printf(" %16s%-4.0f", "R = ", r);
  std::printf("\n");
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (const double tokens : {1e6, 1e7, 1e8}) {
      const Costs& costs = all[s].costs;
      const double one = results[s].one * costs.pairs(tokens) / costs.pairs(static_cast<double>(n));
      std::printf("%-18s %10.0e", all[s].name.c_str(), tokens);
      for (const double r : ranks) {
        std::printf(" %10s %8.1fx", human_bytes(costs.bytes(tokens, r) / tokens * r).c_str(),
                    one / model(costs, tokens, r, one, network));
      }
      std::printf("\n");
    }
  }
}

std::string json_of(const std::vector<Result>& results, const Arguments& arguments, Index n,
                    const Communicator& ranks, const Network& network,
                    const std::vector<std::string>& command) {
  JsonWriter json;
  json.begin_object();
  write_facts(json, "fovea_scale", command);
  json.member("ranks", static_cast<Index>(ranks.size()));
  json.member("rows", n);
  json.member("heads", arguments.heads);
  json.member("width", kWidth);
  json.member("scaling", arguments.weak ? "weak" : "strong");
  json.member("microseconds_of_a_message", network.latency * 1e6);
  json.member("gigabytes_a_second", network.bandwidth * 1e-9);
  json.begin_array("results");
  for (const Result& result : results) {
    json.begin_object();
    json.member("operator", result.name);
    json.member("one_process_milliseconds", result.one * 1e3);
    json.member("milliseconds", result.spread * 1e3);
    json.member("speed_up", result.one / result.spread);
    json.member("speed_up_of_best", result.best_ratio);
    json.member("bytes_sent", result.sent);
    json.member("bytes_sent_in_model", result.sent_in_model);
    json.member("milliseconds_waited", result.waited * 1e3);
    json.member("milliseconds_of_model", result.modelled * 1e3);
    json.end();
  }
  json.end();
  json.end();
  return json.text() + '\n';
}

int run_program(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const Communicator ranks(MPI_COMM_WORLD);
  const bool is_first = ranks.rank() == 0;
  if (arguments.help) {
    if (is_first) std::fputs(std::string(kHelp).c_str(), stdout);
    return 0;
  }
  const Index n = arguments.weak ? arguments.rows * ranks.size() : arguments.rows;
  if (is_first && !arguments.json.empty()) fovea::check_output(arguments.json);
  const Network network = measured_network(ranks);
  if (is_first) {
    std::printf(
        "%d ranks, N = %td, %td heads, D = %td; a message takes %.1f us, and %.1f GB go in a "
        "second\n%-18s %10s %10s %7s %7s %10s %10s %10s %10s\n",
        ranks.size(), n, arguments.heads, kWidth, network.latency * 1e6, network.bandwidth * 1e-9,
        "operator", "one, ms", "ranks, ms", "ratio", "best", "sent", "in model", "waited, ms",
        "model, ms");
  }
  std::vector<System> all = systems(arguments.heads);
  std::erase_if(all, [&](const System& x) { return !x.name.starts_with(arguments.name); });
  if (all.empty()) throw ArgumentError("--operator: none begins with '" + arguments.name + "'");
  std::vector<Result> results;
  for (const System& system : all) {
    const Result& r = results.emplace_back(measure(system, ranks, network, n, arguments));
    if (!is_first) continue;
    std::printf("%-18s %10.2f %10.2f %7.2f %7.2f %10s %10s %10.2f %10.2f\n", r.name.c_str(),
                r.one * 1e3, r.spread * 1e3, r.one / r.spread, r.best_ratio,
                human_bytes(r.sent).c_str(), human_bytes(r.sent_in_model).c_str(), r.waited * 1e3,
                r.modelled * 1e3);
    std::fflush(stdout);
  }
  if (!is_first) return 0;
  print_outlook(all, results, n, {arguments.latency, arguments.bandwidth});
  if (!arguments.json.empty()) {
    fovea::write_file(arguments.json,
                      json_of(results, arguments, n, ranks, network, {argv, argv + argc}));
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
