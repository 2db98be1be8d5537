// SPDX-License-Identifier: MIT
/// \file
/// Which cases of the conformance suite compute by the same code as another one.
#pragma once

#include <cstdlib>
#include <map>
#include <string>

namespace fovea_test {

/// Cases whose kernels run no code that those of another case do not run: only which pairs are
/// visible differs, or where a bias has one element for several. Widths, extreme logits and the
/// like are tried on the other one; sizes, visibility, heads and bits on both.
inline const std::map<std::string, std::string>& covered_cases() {
  static const std::map<std::string, std::string> all = {
      {"causal_top_left", "causal"},
      {"causal_window", "local_128_128"},
      {"local_0_7", "window"},
      {"local_top_left", "window"},
      {"full_bias_of_keys", "full_bias"},
      {"local_bias_sink", "causal_everything"},
      {"local_mask_alibi", "local_everything"},
      {"strided_top_left", "strided"},
      {"strided_first", "strided"},
      {"strided_second", "strided"},
      {"strided_1", "strided_merged"},
      {"strided_merged_128", "strided_merged"},
      {"strided_both_ways", "strided_merged"},
      {"strided_bias_sink", "strided_everything"},
      {"strided_bias_of_all_heads", "strided_everything"},
      {"fixed_second", "fixed"},
      {"fixed_both_ways", "fixed"},
      {"fixed_sub_blocks", "fixed_merged"},
      {"fixed_merged_bias_of_keys", "strided_everything"},
      {"fixed_merged_mask_alibi", "strided_everything"},
      {"longformer_causal", "longformer"},
      {"longformer_bias_sink", "strided_everything"},
      {"big_bird_causal", "big_bird"},
      {"big_bird_last_global", "big_bird"},
      {"big_bird_mask_alibi", "strided_everything"},
      {"dilated", "strided"},
      {"block_list_and_global", "big_bird"},
      {"linear_top_left", "linear_causal"},
      {"linear_2_maps", "linear"},
      {"fmm_top_left", "fmm_3_causal"},
      {"indexed_causal", "indexed"},
      {"indexed_top_left", "indexed"},
      {"smart_bird", "indexed"},
      {"smart_bird_causal", "indexed"},
      {"smart_bird_top_left", "indexed"},
      {"fat", "full"},
      {"random_synthesizer", "full_bias"},
      {"random_synthesizer_causal", "causal_bias"},
      {"factorised_synthesizer", "full"},
      {"factorised_synthesizer_causal", "causal"},
  };
  return all;
}

/// Whether properties of arithmetic are tried on a case: on one for each path through the kernels,
/// or, if FOVEA_EVERY_CASE is set as the preset `full` does, on every case.
inline bool has_own_path(const std::string& name) {
  static const bool all = std::getenv("FOVEA_EVERY_CASE") != nullptr;
  return all || !covered_cases().contains(name);
}

}  // namespace fovea_test
