// SPDX-License-Identifier: MIT
/// \file
/// The memory of a rank during a pass.
#pragma once

#include <malloc.h>
#include <mpi.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include "bench/scale/measure.hpp"

namespace bench {

/// The memory of one operator.
struct MemoryResult {
  std::string name;
  double peak = 0;  ///< bytes beyond the tensors, of the rank with most
  double keys = 0;  ///< bytes of the rank's keys and values
  double seconds = 0;
};

/// Resident memory of this process in bytes: of now, or at its most since forget_peak().
/// \param field VmRSS or VmHWM   \throws std::runtime_error
inline double resident_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return 1024 * std::stod(line.substr(field.size() + 1));
  }
  throw std::runtime_error("/proc/self/status: has no " + field);
}

/// \throws std::runtime_error
inline void forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;
  if (!file) throw std::runtime_error("/proc/self/clear_refs: cannot be written");
}

/// Bytes of this rank beyond what it holds before.
template <class Pass>
double peak_bytes(const Communicator& ranks, const Pass& pass) {
  // What was freed, and may be taken again, would not be counted.
  malloc_trim(0);
  forget_peak();
  const double before = resident_bytes("VmRSS");
  wait_asleep(ranks);
  pass();
  return resident_bytes("VmHWM") - before;
}

inline MemoryResult measure_memory(const System& system, const Stage& at,
                                   const ScaleArguments& asked) {
  const Communicator& ranks = at.ranks;
  const PassOfSystem& pass = system.pass(asked.backward);
  const auto seed = static_cast<std::uint32_t>(ranks.rank());
  // What it reads and writes is there before.
  const auto touch = [&](Tensors& tensors, const Sharding& rows) {
    system.forward.touch(tensors);
    if (!asked.backward) return;
    system.forward.sharded(tensors, rows);
    pass.touch(tensors);
  };
  {
    // A short sequence first: code, and what MPI keeps for itself.
    const Index few =
        std::min<Index>(at.rows, Index{1024} * ranks.size()) / system.multiple * system.multiple;
    const Sharding rows(ranks, system.layout(few, ranks.size()));
    Tensors tensors(asked.heads, rows.layout(), ranks.rank(), seed);
    touch(tensors, rows);
    pass.sharded(tensors, rows);
  }
  const Sharding rows(ranks, system.layout(at.rows, ranks.size()));
  Tensors tensors(asked.heads, rows.layout(), ranks.rank(), seed);
  touch(tensors, rows);
  rows.free_memory();  // what a pass before has left would not be counted
  MemoryResult result;
  result.name = system.look.name;
  const double begun = MPI_Wtime();
  result.peak = most(ranks, peak_bytes(ranks, [&] { pass.sharded(tensors, rows); }));
  result.seconds = MPI_Wtime() - begun;
  result.keys =
      most(ranks, static_cast<double>(rows.own_count() * asked.heads * 2 * kWidth) * sizeof(float));
  return result;
}

}  // namespace bench
