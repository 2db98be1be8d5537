// SPDX-License-Identifier: MIT
/// \file
/// Entries of FSAT attention without the cross before it.
#include "bench/entries/operators.hpp"

#include <vector>

#include "bench/entries/fsat_entry.hpp"

namespace bench {

/// The core of FSAT with M = 4 random dominant indices.
std::vector<Entry> fsat_entries() {
  const std::vector<Family> forward = {{.lengths = {1024, 4096, 16384, 65536}},
                                       {.threads = 2, .lengths = {4096, 16384}}};
  return {pass_entry({"fsat", "random:4"}, FsatSubject{}, forward),
          pass_entry({"fsat", "random:4", "", Pass::backward}, FsatSubject{}, forward),
          fsat_graph_entry({"fsat", "random:4"}, {{.lengths = {1024, 4096, 16384, 65536}}})};
}

}  // namespace bench
