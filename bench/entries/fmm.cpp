// SPDX-License-Identifier: MIT
/// \file
/// Entries of FMM attention.
#include "bench/entries/operators.hpp"

#include <vector>

#include "bench/entries/families.hpp"
#include "bench/entries/far_entry.hpp"
#include "fovea/attention/full.hpp"

namespace bench {

namespace {

/// The far field of the paper.
using ThreeMaps =
    fovea::LinearAttention<fovea::EluPlusOne, fovea::EluMinusPlusOne, fovea::TanhPlusOne>;

}  // namespace

/// FMM attention with one map and with three, Band5 of the paper.
std::vector<Entry> fmm_entries() {
  using fovea::FmmOneKernel;
  using fovea::FmmThreeKernels;
  using fovea::kBand5;
  const FmmOneKernel one_causal({.band = kBand5, .causal = true});
  const FmmThreeKernels three({.band = kBand5});
  const FmmThreeKernels three_causal({.band = kBand5, .causal = true});
  const ForwardPasses<fovea::LocalAttention, ThreeMaps> parts{
      "its parts", {fovea::LocalAttention({4, 4}), ThreeMaps{}}};
  const ForwardPasses<fovea::LocalAttention, ThreeMaps> causal_parts{
      "its parts", {fovea::LocalAttention({4, 0}), ThreeMaps({.causal = true})}};
  const ForwardPasses<fovea::FullAttention> full{"full", {fovea::FullAttention{}}};
  const ForwardPasses<fovea::FullAttention> full_causal{"full, causal",
                                                        {fovea::FullAttention({.causal = true})}};
  const std::vector<Family> of_full = {{.lengths = {4096}}};
  // clang-format off
  return {
      far_entry({"fmm", "causal,maps:3,band:4", "FMM 3 maps, causal"}, three_causal, far_families(), causal_parts),
      far_entry({"fmm", "causal,maps:3,band:4", "FMM 3 maps, training", Pass::training}, three_causal, {}),
      far_decode_entry({"fmm", "causal,maps:3,band:4", "FMM 3 maps, decoding"}, three_causal, far_decode_families()),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      far_entry({"fmm", "maps:3,band:4"}, three, far_families(), parts),
      far_entry({"fmm", "maps:3,band:4"}, three, {shared_head()}),
      far_entry({"fmm", "causal,maps:1,band:4"}, one_causal, few_families()),
      far_entry({"fmm", "maps:3,band:4,beside:full"}, three, of_full, full),
      far_entry({"fmm", "causal,maps:3,band:4,beside:full"}, three_causal, of_full, full_causal),
      far_entry({"fmm", "maps:3,band:4", "", Pass::backward}, three, far_backward_families()),
      far_entry({"fmm", "causal,maps:3,band:4", "", Pass::backward}, three_causal, far_backward_families()),
#endif
  };
  // clang-format on
}

}  // namespace bench
