// SPDX-License-Identifier: MIT
/// \file
/// Attention over lists of keys in the conformance suite.
#include "attention/cases.hpp"
#include "attention/indexed_case.hpp"
#include "support/fill.hpp"

namespace fovea_test {
namespace {

/// A fifth of the keys, by head, position and key: not by the sequence, which tests move.
bool is_listed(const Pair& p) { return hash(77, p.h, p.i(), p.j, 0) % 5 == 0; }

}  // namespace

template <class T>
std::vector<Case<T>> indexed_cases() {
  using fovea::IndexedAttention;
  constexpr auto top_left = fovea::CausalAlignment::top_left;
  constexpr auto key_length = fovea::CausalAlignment::key_length;
  const auto up_to_position = [](const Pair& p) { return p.j <= p.i() && is_listed(p); };
  // By the position, and not by the padding.
  const auto listed_at = [](const Pair& p) {
    return hash(77, p.h, p.position(key_length), p.j, 0) % 5 == 0;
  };
  const auto up_to_row = [](const Pair& p) { return is_listed(p) && p.j <= p.row; };
  return {
      indexed_case<T>("indexed", IndexedAttention{}, is_listed, is_listed),
      indexed_case<T>("indexed_causal", IndexedAttention{{.causal = true}}, is_listed,
                      up_to_position),
      indexed_case<T>("indexed_key_length",
                      IndexedAttention{{.causal = true, .alignment = key_length}}, listed_at,
                      [=](const Pair& p) { return p.j <= p.position(key_length) && listed_at(p); }),
      indexed_case<T>("indexed_top_left",
                      IndexedAttention{{.scale = -0.3, .causal = true, .alignment = top_left}},
                      is_listed, up_to_row),
  };
}
template std::vector<Case<float>> indexed_cases();
template std::vector<Case<double>> indexed_cases();

}  // namespace fovea_test
