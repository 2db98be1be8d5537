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
  return {fsat_forward_entry({"fsat", "random:4"}, forward),
          fsat_backward_entry({"fsat", "random:4"}, forward),
          fsat_graph_entry({"fsat", "random:4"}, {{.lengths = {1024, 4096, 16384, 65536}}})};
}

}  // namespace bench
