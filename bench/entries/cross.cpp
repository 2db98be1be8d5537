// SPDX-License-Identifier: MIT
/// \file
/// Entries of the cross of hidden states, of FSAT with its cross and of the Fourier mixer, and the
/// ratios that the cross and the mixer are judged by.
#include "bench/entries/operators.hpp"

#include <string>
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

/// Its time relative to baselines, backward over forward, and long over short.
std::vector<RowPair> cross_row_pairs() {
  const auto row = [](const char* op, const char* n) {
    return std::string(op).append("/f32/measure,heads:1/D:64/N:").append(n);
  };
  std::vector<RowPair> pairs;
  for (const char* n : {"1024", "4096", "16384", "65536"}) {
    pairs.emplace_back(row("cross/forward", n), row("cross/strided_fftw/forward", n));
    pairs.emplace_back(row("cross/forward", n), row("cross/transforms_alone/forward", n));
    pairs.emplace_back(row("cross/backward", n), row("cross/forward", n));
  }
  pairs.emplace_back(row("cross/forward", "65536"), row("cross/forward", "4096"));
  for (const char* planning : {"estimate", "measure"}) {
    const auto mixer = [&](const char* op) {
      return std::string(op).append("/f32/").append(planning).append(",heads:1/D:512/N:4096");
    };
    pairs.emplace_back(mixer("mixer/forward"), mixer("mixer/whole_fftw/forward"));
  }
  return pairs;
}
#endif

std::vector<Entry> mixer_entries() {
  // clang-format off
  return {
      mixer_entry<HeadMixer>({"mixer", "estimate", "Fourier mixer"}, FftPlanning::estimate),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      mixer_entry<HeadMixer>({"mixer", "measure"}, FftPlanning::measure),
      mixer_entry<WholeTransform>({"mixer/whole_fftw", "estimate"}, FftPlanning::estimate),
      mixer_entry<WholeTransform>({"mixer/whole_fftw", "measure"}, FftPlanning::measure),
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
