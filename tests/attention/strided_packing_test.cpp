// SPDX-License-Identifier: MIT
/// \file
/// Rows of a residue class that are pages apart: neighbouring classes are packed together, and
/// every row has the bits of dense attention over its class.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fovea/attention.hpp"
#include "fovea/core/eigen.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test::attention_residue_classes {

constexpr Index kWidth = 64;
constexpr Index kStride = 40;  // 10 KB of float, more than two pages

template <class T>
Tensor<T> drawn(std::uint64_t seed, const Shape& shape, const Layout& layout = {}) {
  Tensor<T> x(shape, layout);
  const Fill value = gaussian(seed);
  x.fill([&](Index b, Index h, Index n, Index d) { return static_cast<T>(value(b, h, n, d)); });
  return x;
}

/// The rows r, r + stride, ... of a view.
template <class T>
View<T> class_of(const View<T>& x, Index r, Index stride) {
  Shape shape = x.shape();
  Shape strides = x.strides();
  shape[2] = r < shape[2] ? (shape[2] - r + stride - 1) / stride : 0;
  strides[2] *= stride;
  return View<T>(x.data() + r * x.strides()[2], shape, strides);
}

template <class T>
std::vector<float> values_of(const Tensor<T>& x) {
  std::vector<float> values;
  for (const T value : x.values()) values.push_back(static_cast<float>(value));
  return values;
}

/// A2 of N tokens against causal attention over each class.
template <class T>
void expect_bits_of_classes(Index n, bool causal, const Layout& layout = {}) {
  SCOPED_TRACE(std::to_string(n) + (causal ? " tokens, causal" : " tokens"));
  const Shape shape = {1, 2, n, kWidth};
  const Tensor<T> q = drawn<T>(1, shape), k = drawn<T>(2, shape, layout), v = drawn<T>(3, shape);
  const Tensor<T> out(shape), expected(shape);
  const Tensor<float> lse({1, 2, n, 1}), expected_lse({1, 2, n, 1});
  const fovea::SparseAttention op{{.patterns = {fovea::StridedKeys{kStride, causal}}}};
  const fovea::FullAttention dense{{.causal = causal}};
  op.forward({q.view(), k.view(), v.view()}, out.view(), {lse.view()});
  for (Index r = 0; r < (std::min)(n, kStride); ++r) {
    dense.forward({class_of(q.view(), r, kStride), class_of(k.view(), r, kStride),
                   class_of(v.view(), r, kStride)},
                  class_of(expected.view(), r, kStride),
                  {class_of(expected_lse.view(), r, kStride)});
  }
  EXPECT_TRUE(same_bits(values_of(expected), values_of(out)));
  EXPECT_TRUE(same_bits(expected_lse.values(), lse.values(), lse.shape()));
  const Tensor<T> threads(shape);
  op.forward({q.view(), k.view(), v.view()}, threads.view(), {}, Backwards{});
  EXPECT_TRUE(same_bits(values_of(out), values_of(threads)));
}

/// Classes of equal and of different lengths, of fewer keys than a band, and of several tiles.
TEST(StridedPacking, HaveTheBitsOfDenseAttention) {
  for (const bool causal : {true, false}) {
    for (const Index n : {Index{39}, 40 * kStride, 40 * kStride + 17, 140 * kStride - 1}) {
      expect_bits_of_classes<float>(n, causal);
    }
  }
  at_each_level([] { expect_bits_of_classes<float>(50 * kStride + 3, true); });
  expect_bits_of_classes<Eigen::bfloat16>(50 * kStride + 3, true);
  expect_bits_of_classes<float>(50 * kStride + 3, true, {.order = {0, 1, 3, 2}});
}

/// The operators of both patterns, with everything that moves rows against keys, have the bits that
/// narrower rows, which are not packed, have in the same columns.
template <class Op, class Change>
void expect_bits_of_narrow_rows(const Op& op, Index queries, Index keys, const Change& change) {
  SCOPED_TRACE(std::to_string(queries) + " queries, " + std::to_string(keys) + " keys");
  const Tensor<float> q = drawn<float>(1, {1, 2, queries, 16}),
                      k = drawn<float>(2, {1, 2, keys, 16});
  const Tensor<float> v = drawn<float>(3, {1, 2, keys, 512});
  const Tensor<float> wide({1, 2, queries, 512}), narrow({1, 2, queries, 16});
  const auto run = [&](const View<float>& values, const View<float>& out) {
    fovea::SoftmaxInputs<float> in{.q = q.view(), .k = k.view(), .v = values};
    change(in);
    op.forward(in, out);
  };
  run(v.view(), wide.view());
  for (const Index c : {Index{0}, Index{496}}) {
    const View<float> columns(v.view().data() + c, {1, 2, keys, 16}, v.view().strides());
    run(columns, narrow.view());
    const Tensor<float> same({1, 2, queries, 16});
    same.fill([&](Index b, Index h, Index n, Index d) { return wide.view()(b, h, n, c + d); });
    EXPECT_TRUE(same_bits(same.values(), narrow.values(), same.shape()));
  }
}

TEST(StridedPacking, StayWhereverRowsStand) {
  constexpr Index stride = 7;  // 14 KB of 512 values, and less than a page of 16
  const auto plain = [](auto&) {};
  for (const auto heads : {fovea::HeadAssignment::separate, fovea::HeadAssignment::merged}) {
    for (const bool causal : {true, false}) {
      const fovea::StridedAttention op{{.stride = stride, .heads = heads, .causal = causal}};
      expect_bits_of_narrow_rows(op, 400, 400, plain);
      expect_bits_of_narrow_rows(op, 150, 402, plain);
      expect_bits_of_narrow_rows(op, 402, 300, plain);
      const std::vector<Index> lengths = {301};
      expect_bits_of_narrow_rows(op, 403, 403, [&](auto& in) { in.key_lengths = lengths; });
      const std::vector<Index> ends = {0, 250, 251, 403};
      expect_bits_of_narrow_rows(op, 403, 403, [&](auto& in) { in.cu_seqlens_q = ends; });
    }
  }
}

using StridedPlan = decltype(fovea::StridedKeys{7, false}.plan({}));

/// A plan of residue classes of rows all of which see the first keys of the sequence.
struct FirstKeysPlan : StridedPlan {
  static constexpr Index kKeys = 40;  // more than a band

  explicit FirstKeysPlan(const fovea::SequenceShape& shape)
      : StridedPlan(fovea::StridedKeys{7, false}.plan(shape)),
        run{.count = std::min(kKeys, shape.keys)},
        rows(shape.queries) {}

  Index attended_pairs() const { return rows * run.count; }
  fovea::QueryBlock block(Index b, fovea::BlockStorage& storage) const {
    fovea::QueryBlock made = StridedPlan::block(b, storage);
    made.runs = &run;
    made.run_count = 1;
    made.most_keys = kKeys;
    return made;
  }

  fovea::KeyRun run;
  Index rows = 0;
};

struct FirstKeys {
  bool allows(Index, Index j) const { return 0 <= j && j < FirstKeysPlan::kKeys; }
  FirstKeysPlan plan(const fovea::SequenceShape& shape) const { return FirstKeysPlan(shape); }
};

/// Keys in no class are read in place.
TEST(StridedPacking, PackNoKeysOfOtherSteps) {
  const fovea::SparseAttention op{{.patterns = {FirstKeys{}}}};
  expect_bits_of_narrow_rows(op, 400, 400, [](auto&) {});
}

}  // namespace fovea_test::attention_residue_classes
