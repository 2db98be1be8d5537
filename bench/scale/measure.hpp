// SPDX-License-Identifier: MIT
/// \file
/// Times, bytes and waiting of passes over ranks, and the network between them.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "bench/measure/stopwatch.hpp"
#include "bench/scale/arguments.hpp"
#include "bench/scale/system.hpp"

namespace bench {

using fovea::distributed::Communicator;

/// Seconds and bytes a second between ranks 0 and 1, the best of several.
inline Network measured_network(const Communicator& ranks) {
  Network network;
  if (ranks.size() == 1) return network;
  const auto round_trip = [&](std::size_t bytes) {
    std::vector<char> buffer(bytes);
    double best = 1e300;
    const int count = static_cast<int>(bytes);
    for (int i = 0; i < 20 && ranks.rank() < 2; ++i) {
      const double begun = MPI_Wtime();
      const int other = 1 - ranks.rank();
      if (ranks.rank() == 0) MPI_Send(buffer.data(), count, MPI_CHAR, other, 0, ranks.mpi());
      MPI_Recv(buffer.data(), count, MPI_CHAR, other, 0, ranks.mpi(), MPI_STATUS_IGNORE);
      if (ranks.rank() == 1) MPI_Send(buffer.data(), count, MPI_CHAR, other, 0, ranks.mpi());
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

/// Measurements of one operator, and the model's predictions.
struct ScaleResult {
  std::string name;
  double one = 0;    ///< seconds of one process
  double alone = 0;  ///< seconds over rank 0 alone
  double sharded = 0;
  double best_ratio = 0;
  double sent = 0;           ///< bytes of the rank that sends most
  double sent_in_model = 0;  ///< the same of the model
  double sent_by_all = 0;
  double sent_by_all_in_model = 0;
  double waited = 0;
  double modelled = 0;
  Work work;
};

/// The sum of all ranks.
inline double total(const Communicator& ranks, double x) {
  MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_SUM, ranks.mpi());
  return x;
}
/// The largest of all ranks.
inline double most(const Communicator& ranks, double x) {
  MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_MAX, ranks.mpi());
  return x;
}

/// Waits for all ranks asleep, so that those that compute have the cores.
inline void wait_asleep(const Communicator& ranks) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(ranks.mpi(), &request);
  int is_there = 0;
  while (MPI_Test(&request, &is_there, MPI_STATUS_IGNORE), is_there == 0) usleep(500);
}

/// Where passes run.
struct Stage {
  const Communicator& ranks;
  Network network;
  Index rows = 0;
};

inline ScaleResult measure(const System& system, const Stage& at, const ScaleArguments& asked) {
  const Communicator& ranks = at.ranks;
  const PassOfSystem& pass = system.pass(asked.backward);
  const Sharding rows(ranks, system.layout(at.rows, ranks.size()));
  const bool is_first = ranks.rank() == 0;
  // Tensors may keep what needs a communicator.
  const Communicator self(MPI_COMM_SELF);
  const Sharding all(self, system.layout(is_first ? at.rows : 0, 1));
  Tensors own(asked.heads, rows.layout(), ranks.rank(), static_cast<std::uint32_t>(ranks.rank()));
  Tensors whole(asked.heads, all.layout(), 0, 1000);
  // No call makes its tensors.
  pass.touch(own);
  if (is_first) pass.touch(whole);
  if (asked.backward) {
    if (is_first) system.forward.one(whole);
    wait_asleep(ranks);
    system.forward.sharded(own, rows);
  }
  ScaleResult result;
  std::vector<double> one, alone, sharded, waited;
  for (int i = 0; i < asked.repeat; ++i) {
    wait_asleep(ranks);
    if (is_first) {
      one.push_back(seconds_of([&] { pass.one(whole); }));
      alone.push_back(seconds_of([&] { pass.sharded(whole, all); }));
    }
    wait_asleep(ranks);
    MPI_Barrier(ranks.mpi());
    const double begun = MPI_Wtime();
    const CommStats comm_stats = pass.sharded(own, rows);
    sharded.push_back(most(ranks, MPI_Wtime() - begun));
    waited.push_back(most(ranks, comm_stats.seconds_waited));
    result.sent = most(ranks, static_cast<double>(comm_stats.bytes_sent));
    result.sent_by_all = total(ranks, static_cast<double>(comm_stats.bytes_sent));
  }
  result.name = system.look.name;
  // Only rank 0 knows these.
  if (is_first) {
    result.one = median(one);
    result.alone = median(alone);
    result.best_ratio = *std::min_element(one.begin(), one.end()) /
                        *std::min_element(sharded.begin(), sharded.end());
  }
  result.sharded = median(sharded);
  result.waited = median(waited);
  const Sent sent = pass.costs.sent(rows.layout());
  result.sent_in_model = sent.most();
  result.sent_by_all_in_model = sent.total();
  const Machines machines = {at.network, std::max(1.0, 1.0 * std::thread::hardware_concurrency())};
  result.work = Work::fitted(result.one, result.alone);
  result.modelled =
      modelled_seconds(pass.costs, ranks.size(), result.sent_in_model, result.work, machines);
  return result;
}

}  // namespace bench
