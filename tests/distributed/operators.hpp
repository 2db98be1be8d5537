// SPDX-License-Identifier: MIT
/// \file
/// The operators that are tested on ranks: every family, each with another pattern or option.
#pragma once

#include <gtest/gtest.h>

#include "fovea/attention.hpp"

namespace fovea_test {

/// A function of logits that a user writes, which knows positions.
struct NearerIsMore {
  template <class T>
  T value(T z, fovea::ScorePair pair) const noexcept {
    return z - static_cast<T>(0.001) * static_cast<T>(pair.query - pair.key);
  }
  template <class T>
  T derivative(T /*z*/, fovea::ScorePair /*pair*/) const noexcept {
    return 1;
  }
};

/// Each block of queries sees its own block of keys, and the first one.
inline fovea::BlockRows own_and_first_blocks(fovea::Index rows, fovea::Index block) {
  fovea::BlockRows blocks;
  blocks.offsets.push_back(0);
  for (fovea::Index n = 0; n * block < rows; ++n) {
    blocks.columns.push_back(0);
    if (n > 0) blocks.columns.push_back(n);
    blocks.offsets.push_back(static_cast<fovea::Index>(blocks.columns.size()));
  }
  return blocks;
}

/// Returns f(name, op), which calls test(op) and adds the name to its failures.
template <class F>
auto traced(const F& test) {
  return [&test](const char* name, const auto& op) {
    SCOPED_TRACE(name);
    test(op);
  };
}

/// Calls test(op) for those of softmax attention over patterns, for a sequence of that many
/// rows.
template <class F>
void for_each_softmax_operator(fovea::Index rows, const F& test) {
  const auto f = traced(test);
  using fovea::HeadAssignment;
  const fovea::FullAttention causal{{.causal = true}};
  f("full", fovea::FullAttention{});
  f("causal", causal);
  f("cap and dropout",
    fovea::FullAttention{
        {.causal = true, .soft_cap = 2.5, .dropout = {.probability = 0.3, .seed = 99}}});
  f("modified", fovea::ModifiedAttention(causal, NearerIsMore{}));
  f("narrow window", fovea::LocalAttention{{.left = 4, .right = 4}});
  f("window", fovea::LocalAttention{{.left = 70, .right = 11}});
  f("strided", fovea::StridedAttention{{.stride = 16}});
  f("strided, merged", fovea::StridedAttention{{.stride = 16, .heads = HeadAssignment::merged}});
  f("fixed", fovea::FixedAttention{{.stride = 16, .summary = 2}});
  f("fixed, merged", fovea::FixedAttention{{.stride = 16, .heads = HeadAssignment::merged}});
  f("blocks",
    fovea::BlockSparseAttention({.block = 16, .layouts = {own_and_first_blocks(rows, 16)}}));
  f("BigBird", fovea::BigBirdAttention{{.block = 16, .seed = 5}});
  f("patterns of heads",
    fovea::SparseAttention({.patterns = {fovea::AnyPattern(fovea::Window{20, 3}),
                                         fovea::AnyPattern(fovea::strided_merged(8))}}));
}

/// Calls test(op) for those with far fields of every kind, without random features.
template <class F>
void for_each_far_field_operator(const F& test) {
  const auto f = traced(test);
  using fovea::Band;
  using fovea::EluPlusOne;
  f("linear", fovea::LinearAttention<EluPlusOne>());
  f("causal linear", fovea::LinearAttention<EluPlusOne>({.causal = true}));
  f("two maps, joined", fovea::LinearAttention<EluPlusOne, fovea::EluMinusPlusOne>(
                            {.causal = true, .combine = fovea::CombineMaps::joint}));
  f("two maps, mean", fovea::LinearAttention<EluPlusOne, fovea::EluMinusPlusOne>(
                          {.combine = fovea::CombineMaps::mean}));
  f("delta rule", fovea::DeltaRuleAttention<EluPlusOne>());
  f("FMM", fovea::FmmOneKernel({.band = Band::half_width(5)}));
  f("FMM, causal", fovea::FmmOneKernel({.band = {.left = 40}, .causal = true}));
  f("FMM with a delta rule", fovea::FmmTwoKernelsFastWeight({.band = {.left = 9}, .causal = true}));
}

/// The keys that a row of Smart Bird attention chooses.
inline constexpr fovea::Index kChosenKeys = 6;

/// Calls test(op) for those over lists of keys, for a sequence of that many rows.
template <class F>
void for_each_list_operator(fovea::Index rows, const F& test) {
  const auto f = traced(test);
  using fovea::EdgeSource;
  using fovea::FsatAttention;
  using fovea::FsatOptions;
  using fovea::SamplingPolicy;
  for (const bool causal : {false, true}) {
    f("lists", fovea::IndexedAttention{{.scale = 0.7, .causal = causal}});
    for (const SamplingPolicy policy :
         {SamplingPolicy::squared_inverse_log, SamplingPolicy::top_k}) {
      f("Smart Bird", fovea::SmartBirdAttention(
                          {.keys_per_row = kChosenKeys, .policy = policy, .causal = causal}));
    }
  }
  f("FSAT", FsatAttention(FsatOptions{.max_length = rows}));
  f("FSAT, both edges",
    FsatAttention(FsatOptions{
        .max_length = rows + 9, .variance = 3.0, .edges = EdgeSource::both, .seed = 5}));
  f("FSAT, random edges", FsatAttention(FsatOptions{.max_length = rows,
                                                    .confidence = fovea::Confidence::relative,
                                                    .edges = EdgeSource::random,
                                                    .seed = 6,
                                                    .truncate_gradient = false}));
}

/// Calls test(op) for all, for a sequence of that many rows.
template <class F>
void for_each_operator(fovea::Index rows, const F& test) {
  const auto f = traced(test);
  for_each_softmax_operator(rows, test);
  f("FAT", fovea::FatAttention{});
  for_each_far_field_operator(test);
  f("Performer", fovea::PerformerAttention());
  f("Performer, causal", fovea::PerformerAttention({.causal = true}));
  for_each_list_operator(rows, test);
}

}  // namespace fovea_test
