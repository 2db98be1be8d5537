// SPDX-License-Identifier: MIT
/// \file
/// The operators that fovea_bench times and fovea_compare compares: one entry for each pass and
/// choice of options. Each family has a source in this directory, so that families are compiled in
/// parallel. If FOVEA_BENCH_COMPARED_ONLY is defined, entries without a label, which fovea_compare
/// does not show, are omitted, to build faster.
#pragma once

#include <utility>
#include <vector>

#include "bench/entries/operator_entry.hpp"

namespace bench {

/// Those of a family.
using Entries = std::vector<Entry>();

Entries full_entries, local_entries, strided_entries, fixed_entries, longformer_entries,
    big_bird_entries, linear_entries, performer_entries, fmm_entries, delta_entries,
    smart_bird_entries, indexed_entries, sketch_entries, fsat_entries, sorted_entries,
    mixed_entries, luna_entries, synthesizer_entries, eigen_entries;
/// Where FFTW is.
Entries cross_entries, mixer_entries, fsat_cross_entries, fsat_layer_entries;

/// Every operator, in the order of the table. The first ones are full attention, not causal and
/// causal, which fovea_compare measures the others against.
inline std::vector<Entry> operators() {
  std::vector<Entry> all;
  for (Entries* const of_family : {
         full_entries, local_entries, strided_entries, fixed_entries, longformer_entries,
             big_bird_entries, linear_entries, performer_entries, fmm_entries, delta_entries,
             smart_bird_entries, sorted_entries,
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
             indexed_entries, sketch_entries, fsat_entries,
#endif
             mixed_entries, luna_entries, synthesizer_entries, eigen_entries,
#if defined(FOVEA_BENCH_FFTW)
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
             cross_entries,
#endif
             mixer_entries, fsat_cross_entries,
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
             fsat_layer_entries,
#endif
#endif
       }) {
    for (Entry& entry : of_family()) all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace bench
