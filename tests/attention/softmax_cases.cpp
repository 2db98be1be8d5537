// SPDX-License-Identifier: MIT
/// \file
/// Full and local attention in the conformance suite.
#include <cmath>

#include "attention/cases.hpp"

namespace fovea_test {
namespace {

/// A soft cap as a user writes it.
struct OwnCap {
  double cap;

  template <class T>
  T value(T z, fovea::ScorePair /*pair*/) const noexcept {
    const auto c = static_cast<T>(cap);
    return c * std::tanh(z / c);
  }
  template <class T>
  T derivative(T z, fovea::ScorePair /*pair*/) const noexcept {
    const T t = std::tanh(z / static_cast<T>(cap));
    return 1 - t * t;
  }
};

/// An operator with that cap: it has the oracle of the built-in one.
template <class T, class Op>
Case<T> own_cap_case(const std::string& name, const Op& op, const ReferenceMask& reference_mask,
                     const Extras& extras = {}) {
  constexpr double cap = 1.7;
  Case<T> made = make_case<T>(name, fovea::ModifiedAttention(op, OwnCap{cap}), reference_mask);
  Op capped = op;
  capped.options.soft_cap = cap;
  const Case<T> built_in = softmax_case<T>("", capped, reference_mask, extras);
  made.extras = built_in.extras;
  made.options = built_in.options;
  made.oracle = built_in.oracle;
  made.grad_oracle = built_in.grad_oracle;
  return made;
}

/// The patterns, without options.
template <class T>
std::vector<Case<T>> pattern_cases() {
  using fovea::FullAttention;
  using fovea::LocalAttention;
  constexpr auto top_left = fovea::CausalAlignment::top_left;
  constexpr auto key_length = fovea::CausalAlignment::key_length;
  return {
      softmax_case<T>("full", FullAttention{}, all_pairs),
      softmax_case<T>("causal", FullAttention{{.causal = true}}, band(kAllKeys, 0)),
      softmax_case<T>("causal_top_left", FullAttention{{.causal = true, .alignment = top_left}},
                      band(kAllKeys, 0, fovea::CausalAlignment::top_left)),
      softmax_case<T>("causal_key_length", FullAttention{{.causal = true, .alignment = key_length}},
                      band(kAllKeys, 0, key_length)),
      softmax_case<T>("window", FullAttention{{.window = {9, 5}, .scale = -0.4}}, band(9, 5)),
      softmax_case<T>("causal_window", FullAttention{{.causal = true, .window = {70, 3}}},
                      band(70, 0)),
      softmax_case<T>("local_0_0", LocalAttention{}, band(0, 0)),
      softmax_case<T>("local_4_4", LocalAttention{{.left = 4, .right = 4}}, band(4, 4)),
      softmax_case<T>("local_3_0", LocalAttention{{.left = 3}}, band(3, 0)),
      softmax_case<T>("local_16_15", LocalAttention{{.left = 16, .right = 15}}, band(16, 15)),
      softmax_case<T>("local_128_128", LocalAttention{{.left = 128, .right = 128}}, band(128, 128)),
      softmax_case<T>("local_0_7", LocalAttention{{.right = 7, .scale = 0.3}}, band(0, 7)),
      softmax_case<T>("local_key_length",
                      LocalAttention{{.left = 20, .right = 2, .alignment = key_length}},
                      band(20, 2, key_length)),
      softmax_case<T>("local_top_left",
                      LocalAttention{{.left = 20, .right = 2, .alignment = top_left}},
                      band(20, 2, fovea::CausalAlignment::top_left)),
  };
}

/// The options, alone and together.
template <class T>
std::vector<Case<T>> option_cases() {
  using fovea::FullAttention;
  using fovea::LocalAttention;
  constexpr auto top_left = fovea::CausalAlignment::top_left;
  constexpr auto key_length = fovea::CausalAlignment::key_length;
  constexpr fovea::Dropout some{.probability = 0.3, .seed = 0x123456789abcdef};
  const Extras everything = {.bias = "hqk", .mask = "bqk", .alibi = true, .sink = true};
  return {
      softmax_case<T>("full_bias", FullAttention{}, all_pairs, {.bias = "bhqk"}),
      softmax_case<T>("full_bias_of_keys", FullAttention{}, all_pairs, {.bias = "bk"}),
      softmax_case<T>("full_bias_of_rows_mask_of_keys", FullAttention{}, all_pairs,
                      {.bias = "hq", .mask = "hk"}),
      softmax_case<T>("causal_bias", FullAttention{{.causal = true}}, band(kAllKeys, 0),
                      {.bias = "qk"}),
      softmax_case<T>("full_mask", FullAttention{}, all_pairs, {.mask = "bqk"}),
      softmax_case<T>("causal_alibi", FullAttention{{.causal = true}}, band(kAllKeys, 0),
                      {.alibi = true}),
      softmax_case<T>("full_soft_cap", FullAttention{{.soft_cap = 1.7}}, all_pairs),
      own_cap_case<T>("full_own_cap", FullAttention{}, all_pairs),
      own_cap_case<T>("causal_own_cap_and_everything",
                      FullAttention{{.causal = true, .dropout = some}}, band(kAllKeys, 0),
                      everything),
      own_cap_case<T>("local_own_cap", LocalAttention{{.left = 70, .right = 5}}, band(70, 5)),
      softmax_case<T>("full_sink", FullAttention{}, all_pairs, {.sink = true}),
      softmax_case<T>("full_dropout", FullAttention{{.dropout = some}}, all_pairs),
      softmax_case<T>("causal_everything",
                      FullAttention{{.causal = true, .soft_cap = 2.5, .dropout = some}},
                      band(kAllKeys, 0), everything),
      softmax_case<T>("full_key_length_everything",
                      FullAttention{{.alignment = key_length, .soft_cap = 2.5, .dropout = some}},
                      all_pairs, everything),
      own_cap_case<T>("causal_key_length_own_cap_and_everything",
                      FullAttention{{.causal = true, .alignment = key_length, .dropout = some}},
                      band(kAllKeys, 0, key_length), everything),
      softmax_case<T>("local_bias_sink", LocalAttention{{.left = 70, .right = 5}}, band(70, 5),
                      {.bias = "bhqk", .sink = true}),
      softmax_case<T>(
          "local_mask_alibi", LocalAttention{{.left = 4, .right = 11, .alignment = top_left}},
          band(4, 11, fovea::CausalAlignment::top_left), {.mask = "hqk", .alibi = true}),
      softmax_case<T>("local_everything",
                      LocalAttention{{.left = 9, .right = 6, .soft_cap = 1.25, .dropout = some}},
                      band(9, 6), everything),
  };
}

}  // namespace

template <class T>
std::vector<Case<T>> softmax_cases() {
  return joined<T>({pattern_cases<T>(), option_cases<T>()});
}
template std::vector<Case<float>> softmax_cases();
template std::vector<Case<double>> softmax_cases();

}  // namespace fovea_test
