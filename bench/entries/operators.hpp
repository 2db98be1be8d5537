// SPDX-License-Identifier: MIT
/// \file
/// The operators that fovea_bench times and fovea_compare compares: one entry for each pass and
/// choice of options. Each family has a source in this directory, so that families are compiled in
/// parallel. If FOVEA_BENCH_COMPARED_ONLY is defined, entries without a label, which fovea_compare
/// does not show, are omitted, to build faster.
#pragma once

#include <vector>

#include "bench/entries/operator_entry.hpp"
#include "bench/measure/ratios.hpp"

namespace bench {

std::vector<Entry> full_entries();
std::vector<Entry> local_entries();
std::vector<Entry> strided_entries();
std::vector<Entry> fixed_entries();
std::vector<Entry> longformer_entries();
std::vector<Entry> big_bird_entries();
std::vector<Entry> linear_entries();
std::vector<Entry> performer_entries();
std::vector<Entry> fmm_entries();
std::vector<Entry> delta_entries();
std::vector<Entry> smart_bird_entries();
std::vector<Entry> indexed_entries();
std::vector<Entry> sketch_entries();
std::vector<Entry> fsat_entries();
std::vector<Entry> sorted_entries();
std::vector<Entry> mixed_entries();
std::vector<Entry> luna_entries();
std::vector<Entry> synthesizer_entries();
std::vector<Entry> eigen_entries();
/// Where FFTW is.
std::vector<Entry> cross_entries();
std::vector<Entry> mixer_entries();
std::vector<Entry> fsat_cross_entries();
/// The same; fovea_bench alone has it, and `operators` has not.
std::vector<Entry> fsat_layer_entries();

/// The ratios that the sparse operators, those with a far field and the cross are judged by.
std::vector<RowPair> sparse_row_pairs();
std::vector<RowPair> far_row_pairs();
std::vector<RowPair> cross_row_pairs();

/// Every operator, in the order of the table. The first ones are full attention, not causal and
/// causal, which fovea_compare measures the others against.
inline std::vector<Entry> operators() {
  std::vector<Entry> all;
  const auto add = [&](const std::vector<Entry>& entries) {
    all.insert(all.end(), entries.begin(), entries.end());
  };
  add(full_entries());
  add(local_entries());
  add(strided_entries());
  add(fixed_entries());
  add(longformer_entries());
  add(big_bird_entries());
  add(linear_entries());
  add(performer_entries());
  add(fmm_entries());
  add(delta_entries());
  add(smart_bird_entries());
  add(sorted_entries());
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
  add(indexed_entries());
  add(sketch_entries());
  add(fsat_entries());
#endif
  add(mixed_entries());
  add(luna_entries());
  add(synthesizer_entries());
  add(eigen_entries());
#if defined(FOVEA_BENCH_FFTW)
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
  add(cross_entries());
#endif
  add(mixer_entries());
  add(fsat_cross_entries());
#endif
  return all;
}

/// Ratios in addition to those that `row_pairs` finds.
inline std::vector<RowPair> operator_row_pairs() {
  std::vector<RowPair> all = sparse_row_pairs();
  for (const RowPair& pair : far_row_pairs()) all.push_back(pair);
#if defined(FOVEA_BENCH_FFTW) && !defined(FOVEA_BENCH_COMPARED_ONLY)
  for (const RowPair& pair : cross_row_pairs()) all.push_back(pair);
#endif
  return all;
}

}  // namespace bench
