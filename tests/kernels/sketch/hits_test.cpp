// SPDX-License-Identifier: MIT
// fovea_test(ALONE)
/// \file
/// A choice that is certain for an interval of normalisers is the choice among all keys for each of
/// them, at every level, also where the interval is longer than any loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "fovea/core/key_run.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/kernels/sketch/select.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/matrix.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"

namespace {

/// A row's keys, and memory for the selection.
template <class T>
struct RowOfTest {
  using Index = fovea::Index;
  const T* logits;  // followed by -infinity
  Index keys;
  T most, normaliser;
  const typename fovea::SketchBlocks<T>::Position* names;
  T* memory;            // [6, room]
  std::int64_t* order;  // [room]
  Index room;
};

/// The functions of hits_body.inl.hpp for one level.
template <class T>
struct HitsOfLevel {
  using Index = fovea::Index;
  bool (*certain)(const fovea::SketchSelectArgs<T>& args, const RowOfTest<T>& row, T wanted, T cap,
                  double interval, Index head, Index* to);
  void (*of_all)(const fovea::SketchSelectArgs<T>& args, const RowOfTest<T>& row, Index head,
                 Index* to);
};

}  // namespace

#define FOVEA_LEVEL_BODY "kernels/sketch/hits_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace fovea_test {
namespace {

using fovea::SamplingPolicy;

constexpr Index kKeys = 200;
constexpr Index kRoom = fovea::sketch_room(kKeys);

/// Drawn logits, their names, and memory.
template <class T>
struct Row {
  Row() : logits(as_size(kRoom), -std::numeric_limits<T>::infinity()) {
    const Fill fill = gaussian(1, 1.5);
    for (Index n = 0; n < kKeys; ++n) logits[as_size(n)] = static_cast<T>(fill(0, 0, n, 0));
    std::iota(names.begin(), names.end(), 0);
  }
  /// The row with another normaliser.
  RowOfTest<T> with(double normaliser) {
    const T most = *std::max_element(logits.begin(), logits.end());
    return {logits.data(), kKeys,         most,         static_cast<T>(normaliser),
            names.data(),  memory.data(), order.data(), kRoom};
  }

  std::vector<T> logits;
  std::vector<typename fovea::SketchBlocks<T>::Position> names =
      std::vector<typename fovea::SketchBlocks<T>::Position>(as_size(kRoom));
  std::vector<T> memory = std::vector<T>(as_size(6 * kRoom));
  std::vector<std::int64_t> order = std::vector<std::int64_t>(as_size(kRoom));
};

/// Expects the reference mask of many heads. Returns how many of them were certain.
template <SamplingPolicy P, class T>
Index expect_certain(Index chosen, double interval) {
  const HitsOfLevel<T> level = FOVEA_AT_LEVEL(fovea::isa_level(), operations<P, T>());
  // Numbers with few digits, so that their sums are exact.
  constexpr double normaliser = 0.5;
  constexpr T cap = 6;
  const T wanted = static_cast<T>(chosen) + 3;
  Row<T> row;
  fovea::SketchSelectArgs<T> args;
  args.chosen = chosen;
  args.seed = 5;
  std::vector<Index> got(as_size(chosen)), expected(as_size(chosen));
  Index certain = 0;
  for (Index head = 0; head < 300; ++head) {
    if (!level.certain(args, row.with(normaliser), wanted, cap, interval, head, got.data())) {
      continue;
    }
    ++certain;
    for (const double part : {0.0, 0.125, 0.25, 0.5, 0.75, 1.0}) {
      level.of_all(args, row.with(normaliser + part * interval), head, expected.data());
      EXPECT_EQ(got, expected) << "head " << head << ", part " << part;
    }
  }
  return certain;
}

template <SamplingPolicy P, class T>
void expect_all_certain() {
  for (const double interval : {0.0, 0x1p-10, 0.125, 2.0, 32.0}) {
    Index certain = 0;
    for (const Index chosen : {1, 3}) {
      SCOPED_TRACE("K " + std::to_string(chosen) + ", interval " + std::to_string(interval));
      certain += expect_certain<P, T>(chosen, interval);
    }
    EXPECT_GT(certain, 0) << "no choice is certain for the interval " << interval;
  }
}

template <class T>
void expect_policies() {
  expect_all_certain<SamplingPolicy::squared_inverse_log, T>();
  expect_all_certain<SamplingPolicy::inverse_log, T>();
  expect_all_certain<SamplingPolicy::raw, T>();
}

TEST(SketchHits, AreCertainForAllNormalisersInAnInterval) {
  at_each_level([] {
    expect_policies<float>();
    expect_policies<double>();
  });
}

}  // namespace
}  // namespace fovea_test
