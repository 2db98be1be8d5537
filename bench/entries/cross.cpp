// SPDX-License-Identifier: MIT
/// \file
/// Entries of the cross of hidden states, of FSAT with its cross and of the Fourier mixer.
#include "bench/entries/operators.hpp"

#include <vector>

#include "bench/entries/cross_entry.hpp"
#include "bench/entries/fsat_cross_entry.hpp"
#include "bench/entries/mixer_entry.hpp"

namespace bench {

#if !defined(FOVEA_BENCH_COMPARED_ONLY)
std::vector<Entry> cross_entries() {
  constexpr auto estimate = FftPlanning::estimate;
  constexpr auto measure = FftPlanning::measure;
  const std::vector<Index> lengths = {1024, 4096, 16384, 65536};
  const std::vector<Family> families = {{.lengths = lengths},
                                        {.threads = 2, .lengths = {4096, 65536}}};
  // clang-format off
  return {
      cross_forward_entry({"cross", "estimate"}, estimate, families),
      cross_backward_entry({"cross", "estimate"}, estimate, families),
      cross_forward_entry({"cross", "measure"}, measure, families),
      cross_backward_entry({"cross", "measure"}, measure, families),
      strided_fftw_entry({"cross/strided_fftw", "measure"}, {{.lengths = {1024, 4096}}}),
      transforms_alone_entry({"cross/transforms_alone", "measure"}, {{.lengths = lengths}}),
  };
  // clang-format on
}

#endif

std::vector<Entry> mixer_entries() {
  // clang-format off
  return {
      mixer_entry({"mixer", "estimate", "Fourier mixer"}, FftPlanning::estimate),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      mixer_entry({"mixer", "measure"}, FftPlanning::measure),
#endif
  };
  // clang-format on
}

std::vector<Entry> fsat_cross_entries() {
  const std::vector<Family> lengths = {{.lengths = {1024, 4096, 16384}}};
  // clang-format off
  return {
      fsat_cross_entry({"fsat", "cross,random:4", "FSAT, random indices"}, lengths),
      fsat_cross_entry({"fsat", "cross,random:4", "FSAT, training", Pass::training}, {}),
  };
  // clang-format on
}

}  // namespace bench
