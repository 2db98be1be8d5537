// SPDX-License-Identifier: MIT
/// \file
/// Operators over lists and blocks of keys, of few rows, with random features and with a delta rule
/// with drawn options, compiled once for all trials.
#include <algorithm>

#include "attention/indexed_case.hpp"
#include "attention/longformer_mask.hpp"
#include "attention/performer_case.hpp"
#include "attention/reference_masks.hpp"
#include "attention/sparse_masks.hpp"
#include "fuzz/drawn_operators.hpp"
#include "fuzz/drawn_problem.hpp"
#include "support/scalars.hpp"

namespace fovea_test {
namespace {

template <class T>
Case<T> drawn_longformer_case(Bytes& bytes) {
  const fovea::LongformerOptions o = drawn_longformer(bytes);
  Case<T> made = softmax_case<T>("drawn Longformer", fovea::LongformerAttention(o),
                                 longformer_mask(o), drawn_extras(bytes));
  made.in_runs = true;
  made.least_keys = least_keys(o);
  return made;
}

template <class T>
Case<T> drawn_block_case(Bytes& bytes) {
  const fovea::BlockSparseOptions o = drawn_block_sparse(bytes);
  const ReferenceMask reference_mask = [o](const Pair& p) {
    const Index i = p.position(o.alignment);
    const fovea::BlockRows& rows = o.layouts[as_size(p.h) % o.layouts.size()];
    const Index row = block_of(i, o.block);
    if (row < 0 || row + 1 >= std::ssize(rows.offsets) || (o.causal && p.j > i)) return false;
    const auto begin = rows.columns.begin();
    return std::binary_search(begin + rows.offsets[as_size(row)],
                              begin + rows.offsets[as_size(row) + 1], p.j / o.block);
  };
  Case<T> made = softmax_case<T>("drawn BlockList", fovea::BlockSparseAttention(o), reference_mask,
                                 drawn_extras(bytes));
  made.in_runs = made.by_head = true;
  made.least_keys = least_keys(o);
  return made;
}

/// A step of Luna: any options of softmax attention over all pairs.
template <class T>
Case<T> drawn_luna_case(Bytes& bytes) {
  fovea::LunaOptions options;
  options.scale = drawn_scale(bytes);
  const fovea::LunaAttention luna(options);
  const bool packs = bytes.once_in(2);
  const Extras extras = drawn_extras(bytes);
  return packs ? softmax_case<T>("drawn Luna pack", luna.pack(), all_pairs, extras)
               : softmax_case<T>("drawn Luna unpack", luna.unpack(), all_pairs, extras);
}

template <class T>
Case<T> drawn_indexed_case(Bytes& bytes) {
  fovea::IndexedAttention op;
  op.options.causal = bytes.once_in(2);
  op.options.scale = drawn_scale(bytes);
  if (bytes.once_in(4)) op.options.alignment = fovea::CausalAlignment::top_left;
  const auto turns = static_cast<std::uint64_t>(bytes.once_in(2) ? bytes(1, 4) : bytes(1, 200));
  const ReferenceMask listed = [turns](const Pair& p) {
    return hash(77, p.h, p.i(), p.j, 0) % turns == 0;
  };
  const ReferenceMask reference_mask = [=, o = op.options](const Pair& p) {
    return listed(p) && (!o.causal || p.j <= p.position(o.alignment));
  };
  return indexed_case<T>("drawn indexed", op, listed, reference_mask);
}

/// The delta rule, alone or in FMM attention.
template <class T>
Case<T> drawn_delta_case(Bytes& bytes) {
  switch (bytes(0, 2)) {
    case 0: {
      fovea::DeltaRuleAttention<fovea::EluPlusOne> op;
      if (bytes.once_in(4)) op.options.alignment = fovea::CausalAlignment::top_left;
      return delta_case<T>("drawn delta rule", op);
    }
    case 1:
      return delta_case<T>("drawn delta rule of ReLU", fovea::DeltaRuleAttention<fovea::Relu>{});
    default: {
      const auto op = drawn_fmm<fovea::FmmTwoKernelsFastWeight>(bytes, true);
      Extras extras = drawn_blend(bytes);
      extras.beta = true;
      return fmm_case<T>("drawn FMM of a delta rule", op, extras);
    }
  }
}

template <class T>
Case<T> drawn_performer_case(Bytes& bytes) {
  fovea::PerformerOptions options{.causal = bytes.once_in(2)};
  if (bytes.once_in(4)) options.alignment = fovea::CausalAlignment::top_left;
  const Index features = bytes.once_in(3) ? bytes(1, 140) : bytes(1, 20);
  return performer_case<T>("drawn Performer", options, features);
}

}  // namespace

template <class T>
Case<T> drawn_other_case(Bytes& bytes) {
  switch (bytes(0, 6)) {
    case 0:
      return drawn_longformer_case<T>(bytes);
    case 1:
      return drawn_block_case<T>(bytes);
    case 2:
      return drawn_luna_case<T>(bytes);
    case 3:
      return drawn_indexed_case<T>(bytes);
    case 4:
      return drawn_delta_case<T>(bytes);
    default:
      return drawn_performer_case<T>(bytes);
  }
}
#define FOVEA_DRAWN(T) template Case<T> drawn_other_case(Bytes&);
FOVEA_TEST_SCALARS(FOVEA_DRAWN)
#undef FOVEA_DRAWN

}  // namespace fovea_test
