// SPDX-License-Identifier: MIT
/// \file
/// Operators with drawn options and the reference masks and oracles that they must follow, compiled
/// once for all trials.
#include "attention/big_bird_mask.hpp"
#include "attention/cases.hpp"
#include "attention/linear_case.hpp"
#include "attention/sparse_masks.hpp"
#include "fuzz/drawn_operators.hpp"
#include "fuzz/drawn_problem.hpp"
#include "support/scalars.hpp"

namespace fovea_test {
namespace {

template <class T>
Case<T> drawn_full_case(Bytes& bytes) {
  const fovea::FullAttention op = drawn_full(bytes);
  const auto [left, right] = op.options.window;
  const ReferenceMask reference_mask =
      band(left, op.options.causal ? std::min<Index>(right, 0) : right, op.options.alignment);
  return softmax_case<T>("drawn full", op, reference_mask, drawn_extras(bytes));
}

template <class T>
Case<T> drawn_local_case(Bytes& bytes) {
  const fovea::LocalAttention op = drawn_local(bytes);
  const ReferenceMask reference_mask =
      band(op.options.left, op.options.right, op.options.alignment);
  return softmax_case<T>("drawn local", op, reference_mask, drawn_extras(bytes));
}

/// A reference mask of head, position and key, whose heads are those of `heads`.
template <class First, class Second>
ReferenceMask heads_mask(fovea::HeadAssignment heads, First first, Second second) {
  using enum fovea::HeadAssignment;
  return [=](const Pair& p) {
    const bool sees_first = heads == merged || heads == only_first;
    const bool sees_second = heads == merged || heads == only_second;
    const bool is_even = p.h % 2 == 0;
    const bool shares = heads == separate;
    return ((sees_first || (shares && is_even)) && first(p.i(), p.j)) ||
           ((sees_second || (shares && !is_even)) && second(p.i(), p.j));
  };
}

template <class T>
Case<T> drawn_strided_case(Bytes& bytes) {
  const fovea::StridedAttention op = drawn_strided(bytes);
  const Index l = op.options.stride;
  const ReferenceMask reference_mask = heads_mask(
      op.options.heads, [l](Index i, Index j) { return strided_first(i, j, l); },
      [l](Index i, Index j) { return strided_second(i, j, l); });
  return softmax_case<T>("drawn strided", op, reference_mask, drawn_extras(bytes));
}

template <class T>
Case<T> drawn_fixed_case(Bytes& bytes) {
  const fovea::FixedAttention op = drawn_fixed(bytes);
  const Index l = op.options.stride;
  const Index c = op.options.summary;
  const ReferenceMask reference_mask = heads_mask(
      op.options.heads, [l](Index i, Index j) { return fixed_first(i, j, l); },
      [l, c](Index i, Index j) { return fixed_second(i, j, l, c); });
  return softmax_case<T>("drawn fixed", op, reference_mask, drawn_extras(bytes));
}

template <class T>
Case<T> drawn_big_bird_case(Bytes& bytes) {
  const fovea::BigBirdAttention op = drawn_big_bird(bytes);
  Case<T> made =
      softmax_case<T>("drawn BigBird", op, big_bird_mask(op.options), drawn_extras(bytes));
  made.in_runs = made.by_head = true;
  return made;
}

template <class T>
Case<T> drawn_sparse_case(Bytes& bytes) {
  const DrawnSparse drawn = drawn_sparse(bytes);
  const ReferenceMask reference_mask = [reference_masks = drawn.reference_masks](const Pair& p) {
    return reference_masks[as_size(p.h) % reference_masks.size()](p.i(), p.j);
  };
  Case<T> made =
      softmax_case<T>("drawn" + drawn.made, drawn.op, reference_mask, drawn_extras(bytes));
  made.in_runs = made.by_head = true;
  return made;
}

template <class T>
Case<T> drawn_far_case(Bytes& bytes) {
  using fovea::EluMinusPlusOne;
  using fovea::EluPlusOne;
  switch (bytes(0, 3)) {
    case 0:
      return linear_case<T>("drawn linear", drawn_linear<EluPlusOne>(bytes));
    case 1:
      return linear_case<T>("drawn linear of two maps",
                            drawn_linear<EluPlusOne, EluMinusPlusOne>(bytes));
    case 2: {
      const auto op = drawn_fmm<fovea::FmmOneKernel>(bytes, bytes.once_in(2));
      return fmm_case<T>("drawn FMM", op, drawn_blend(bytes));
    }
    default: {
      const auto op = drawn_fmm<fovea::FmmTwoKernels>(bytes, bytes.once_in(2));
      return fmm_case<T>("drawn FMM of two maps", op, drawn_blend(bytes));
    }
  }
}

}  // namespace

template <class T>
Case<T> drawn_case(Bytes& bytes) {
  switch (bytes(0, 7)) {
    case 0:
      return drawn_full_case<T>(bytes);
    case 1:
      return drawn_local_case<T>(bytes);
    case 2:
      return drawn_strided_case<T>(bytes);
    case 3:
      return drawn_fixed_case<T>(bytes);
    case 4:
      return bytes.once_in(2) ? drawn_big_bird_case<T>(bytes) : drawn_sparse_case<T>(bytes);
    case 5:
      return drawn_other_case<T>(bytes);
    case 6:
      return drawn_far_case<T>(bytes);
    default:
      return drawn_of(bytes, all_cases<T>());
  }
}
#define FOVEA_DRAWN(T) template Case<T> drawn_case(Bytes&);
FOVEA_TEST_SCALARS(FOVEA_DRAWN)
#undef FOVEA_DRAWN

}  // namespace fovea_test
