// SPDX-License-Identifier: MIT
/// \file
/// Strided attention of the Sparse Transformer (Child et al. 2019; MATHS.md, section 3): the local
/// window A1 and the strided keys A2, (i - j) mod l = 0.
#pragma once

#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Keys of the window A1 of stride l.
enum class StridedReach {
  formula,  ///< i - j <= l, the paper's set: l + 1 keys
  code,     ///< i - j < l, as the authors' code has it: l keys
};

/// A1: the window before the query; bidirectional: around it.
constexpr Window strided_local(Index stride, bool causal = true,
                               StridedReach reach = StridedReach::formula) {
  const Index left = reach == StridedReach::formula ? stride : stride - 1;
  return {left, causal ? 0 : left};
}

/// A2: every `stride`-th key, counted from the query. Rows of one residue see dense keys of that
/// residue: nothing is gathered.
struct StridedKeys {
  Index stride = 1;
  bool causal = true;

  constexpr bool allows(Index i, Index j) const {
    return (!causal || j <= i) && (i - j) % stride == 0;
  }

  constexpr Index row_step() const { return stride; }
  constexpr Range keys_of(Index) const { return kEverywhere; }
  constexpr Index same_until(Index) const { return kFarPosition; }
  constexpr bool causal_cut() const { return causal; }
  constexpr Range seen_from(const Range& keys) const {
    return {causal ? keys.begin : -kFarPosition, kFarPosition};
  }

  SlotPlan<StridedKeys> plan(const SequenceShape& shape) const { return {*this, shape}; }
};

/// A2 without the keys that the window strided_local(stride, causal, reach) shows.
struct StridedBeyond {
  Index stride = 1;
  bool causal = true;
  StridedReach reach = StridedReach::formula;

  constexpr bool allows(Index i, Index j) const {
    return StridedKeys{stride, causal}.allows(i, j) &&
           !strided_local(stride, causal, reach).allows(i, j);
  }

  constexpr Index row_step() const { return stride; }
  constexpr Index slot_count() const { return causal ? 1 : 2; }
  void keys_of(Index i, std::span<Range> slots) const {
    const Index own = floor_div(i, stride);
    const Index shown = reach == StridedReach::formula ? 1 : 0;  // of the window, on either side
    slots[0] = {-kFarPosition, own - shown};
    if (!causal) slots[1] = {own + shown + 1, kFarPosition};
  }
  constexpr Index linear_until(Index) const { return kFarPosition; }
  constexpr Range seen_from(const Range& keys) const {
    return StridedKeys{stride, causal}.seen_from(keys);
  }

  SlotPlan<StridedBeyond> plan(const SequenceShape& shape) const { return {*this, shape}; }
};

/// \throws std::invalid_argument stride < 1, or too large for positions
inline void check_strided(const char* op, Index stride) {
  if (stride < 1) refuse(op, "stride", std::to_string(stride), "at least 1");
  if (stride > kFarPosition) {
    refuse(op, "stride", std::to_string(stride), "at most " + std::to_string(kFarPosition));
  }
}

static_assert(Pattern<StridedKeys> && Pattern<StridedBeyond>);

FOVEA_NAMESPACE_END
