// SPDX-License-Identifier: MIT
/// \file
/// Logits and weights as tensors: every softmax operator against its oracle; what is hidden; the
/// rows of decoders; refusals.
#include "fovea/attention/scores.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "attention/bad_input.hpp"
#include "attention/conformance.hpp"
#include "attention/reference_masks.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_scores {

using fovea::AttentionScores;

/// Tensors for all matrices.
template <class T>
struct Matrices {
  explicit Matrices(const AttentionShape& s, const Layout& layout = {})
      : shape{s.batch, s.query_heads, s.queries, s.keys},
        raw(shape, layout),
        capped(shape, layout),
        logits(shape, layout),
        weights(shape, layout) {}

  AttentionScores<T> to() const {
    return {.raw = raw.view(),
            .capped = capped.view(),
            .logits = logits.view(),
            .weights = weights.view()};
  }

  Shape shape;
  Tensor<T> raw, capped, logits, weights;
};

constexpr double kBound = 16;

/// The oracle's weights or logits.
template <class T>
Reference<T> pairs_of(const Case<T>& op, const AllInputs<T>& in, const Shape& shape, bool weights) {
  using W = Wide<T>;
  Reference<T> made = zero_reference<T>(shape);
  if (!weights) made.value.assign(made.value.size(), -std::numeric_limits<W>::infinity());
  for_each_oracle_row(
      in, OracleOperator<T>::of(op.options, op.visible, in.q.width()),
      [&](const OracleRow<T>& row) {
        for (std::size_t n = 0; n < row.keys.size(); ++n) {
          const std::size_t at = place_of(shape, row.batch, row.head, row.query, row.keys[n]);
          made.value[at] = weights ? row.p[n] * row.kept[n] : row.s[n];
          made.gauge[at] = (weights ? row.size[n] * row.kept[n] : 1) * (1 + row.largest);
        }
      });
  return made;
}

template <class T>
void expect_scores(const Case<T>& op, const Problem<T>& problem) {
  SCOPED_TRACE(describe(problem));
  const AllInputs<T> in = problem.inputs();
  fovea::ThreadPool pool(3);
  AnyExecutor threads = AnyExecutor::of(pool);
  fovea::Serial serial;
  AnyExecutor one = AnyExecutor::of(serial);
  const Matrices<T> got(problem.shape);
  op.scores(in, got.to(), threads);
  EXPECT_TRUE(within_ratio(got.logits.values(), pairs_of(op, in, got.shape, false), kBound,
                           {op.name, "logits"}));
  EXPECT_TRUE(within_ratio(got.weights.values(), pairs_of(op, in, got.shape, true), kBound,
                           {op.name, "weights"}));
  const Matrices<T> again(problem.shape,
                          Layout{.order = {2, 0, 3, 1}, .offset = 3, .innermost = 2, .gap = 1});
  op.scores(in, again.to(), one);
  EXPECT_TRUE(same_bits(got.raw.values(), again.raw.values()));
  EXPECT_TRUE(same_bits(got.capped.values(), again.capped.values()));
  EXPECT_TRUE(same_bits(got.logits.values(), again.logits.values()));
  EXPECT_TRUE(same_bits(got.weights.values(), again.weights.values()));
  const Tensor<T> alone(got.shape);
  op.scores(in, {.weights = alone.view()}, threads);
  EXPECT_TRUE(same_bits(got.weights.values(), alone.values()));
}

template <class T>
class ScoresOf : public testing::Test {};

TYPED_TEST_SUITE(ScoresOf, Scalars);

TYPED_TEST(ScoresOf, EveryOperator) {
  using T = TypeParam;
  for (const Case<T>& op : all_cases<T>()) {
    if (!op.scores) continue;
    SCOPED_TRACE(op.name);
    expect_scores(op, make_problem(op, {2, 4, 2, 70, 33, 6, 3}));
    expect_scores(op, make_problem(op, sizes(9, 300, 3, 2), 3));
    Problem<T> lengths = make_problem(op, {3, 1, 1, 40, 40, 3, 4}, 4);
    lengths.key_lengths = {0, 17, 40};
    expect_scores(op, lengths);
    if (!op.packs) continue;
    expect_scores(op, make_packed(op, {1, 2, 1, 0, 0, 5, 3}, {70, 0, 33}, {64, 3, 40}));
  }
}

/// raw and capped are of all pairs; an invisible NaN reaches them alone.
TEST(Scores, RawAndCappedLogitsIgnoreTheMask) {
  using fovea::FullAttention;
  const AttentionShape shape{1, 2, 1, 5, 9, 3, 2};
  const Problem<double> problem =
      make_problem(softmax_case<double>("", FullAttention{}, all_pairs), shape);
  const FullAttention op{{.causal = true, .scale = 0.5, .soft_cap = 2}};
  const std::vector<Index> lengths = {7};
  fovea::SoftmaxInputs<double> in{.q = problem.q.view(), .k = problem.k.view()};
  in.key_lengths = lengths;
  const std::vector<Index> first_positions = {4};
  in.first_positions = first_positions;
  const double sink[] = {1, 2};
  in.sink = sink;
  problem.k(0, 0, 8, 1) = std::numeric_limits<double>::quiet_NaN();
  const Matrices<double> got(shape);
  fovea::attention_scores<double>(op, in, got.to());
  for_each_index(got.shape, [&](Index b, Index h, Index i, Index j) {
    double raw = 0;
    for (Index d = 0; d < 3; ++d) raw += 0.5 * problem.q(b, h, i, d) * problem.k(b, 0, j, d);
    const bool sees = j <= i + 4 && j < 7;
    EXPECT_EQ(got.logits(b, h, i, j) == -std::numeric_limits<double>::infinity(), !sees);
    EXPECT_EQ(got.weights(b, h, i, j) == 0, !sees);
    if (j == 8) {
      EXPECT_TRUE(std::isnan(got.raw(b, h, i, j)) && std::isnan(got.capped(b, h, i, j)));
      return;
    }
    EXPECT_NEAR(got.raw(b, h, i, j), raw, 1e-14);
    EXPECT_NEAR(got.capped(b, h, i, j), 2 * std::tanh(raw / 2), 1e-14);
    if (sees) {
      EXPECT_EQ(got.logits(b, h, i, j), got.capped(b, h, i, j));
    }
  });
}

/// A row that sees no key has weights of 0, with a sink, too; a visible NaN makes the weights that
/// are visible NaN, and no others.
TEST(Scores, RowsWithoutKeysAndWithNaN) {
  using fovea::FullAttention;
  const AttentionShape shape{1, 1, 1, 4, 6, 2, 2};
  const Problem<float> problem =
      make_problem(softmax_case<float>("", FullAttention{}, all_pairs), shape);
  const Tensor<bool> mask({1, 1, 4, 6});
  mask.fill([](Index, Index, Index i, Index j) { return i != 1 && j != 5; });
  problem.q(0, 0, 2, 0) = std::numeric_limits<float>::quiet_NaN();
  const float sink[] = {0};
  for (const bool has_sink : {false, true}) {
    fovea::SoftmaxInputs<float> in{.q = problem.q.view(), .k = problem.k.view()};
    in.mask = mask.view();
    if (has_sink) in.sink = sink;
    const Tensor<float> weights({1, 1, 4, 6});
    fovea::attention_scores<float>(FullAttention{}, in, {.weights = weights.view()});
    for (Index j = 0; j < 6; ++j) {
      EXPECT_EQ(weights(0, 0, 1, j), 0);
      EXPECT_EQ(std::isnan(weights(0, 0, 2, j)), j != 5);
      EXPECT_EQ(weights(0, 0, 3, j) > 0, j != 5);
    }
  }
}

/// The rows of a decoder have the bits of those of the whole sequence, whatever it has forgotten.
template <class T, class Op>
void expect_decoded(const Op& op, const ReferenceMask& reference_mask) {
  const AttentionShape shape{2, 4, 2, 90, 90, 5, 3};
  Problem<T> problem = make_problem(softmax_case<T>("", op, reference_mask, {.bias = "qk"}), shape);
  const fovea::SoftmaxInputs<T> all = problem.inputs();
  const Matrices<T> whole(shape);
  const Tensor<T> out(problem.out_shape());
  fovea::attention_scores<T>(op, all, {.out = out.view(), .weights = whole.weights.view()});
  fovea::attention_scores<T>(op, all, {.logits = whole.logits.view()});
  auto decoder = op.template decoder<T>(
      {.batch = 2, .query_heads = 4, .key_heads = 2, .width = 5, .value_width = 3});
  fovea::ThreadPool pool(3);
  for (Index begin = 0, count = 0; begin < 90; begin += count) {
    count = std::min<Index>(90 - begin, begin % 7 == 3 ? 4 : 1);
    const auto rows = [&](const Tensor<T>& x, Index columns) {
      const View<T> v = x.view();
      return View<T>(&v(0, 0, begin, 0), {v.batch(), v.heads(), count, columns}, v.strides());
    };
    fovea::SoftmaxInputs<T> in{
        .q = rows(problem.q, 5), .k = rows(problem.k, 5), .v = rows(problem.v, 3)};
    in.bias = rows(*problem.bias, begin + count);
    const Tensor<T> got_out({2, 4, count, 3});
    const Tensor<T> lse({2, 4, count, 1});
    const Matrices<T> got({2, 4, 2, count, begin + count, 5, 3});
    fovea::attention_scores<T>(decoder, in,
                               {.out = got_out.view(),
                                .lse = lse.view(),
                                .logits = got.logits.view(),
                                .weights = got.weights.view()},
                               pool);
    ASSERT_EQ(decoder.length(), begin + count);
    for_each_index(got.shape, [&](Index b, Index h, Index i, Index j) {
      ASSERT_EQ(got.logits(b, h, i, j), whole.logits(b, h, begin + i, j))
          << begin << " " << i << " " << j;
      ASSERT_EQ(got.weights(b, h, i, j), whole.weights(b, h, begin + i, j));
    });
    for_each_index(got_out.shape(), [&](Index b, Index h, Index i, Index d) {
      ASSERT_EQ(got_out(b, h, i, d), out(b, h, begin + i, d));
    });
  }
}

TEST(Scores, OfDecoders) {
  const ReferenceMask causal = band(kAllKeys, 0);
  expect_decoded<float>(fovea::FullAttention{{.causal = true, .dropout = {.probability = 0.3}}},
                        causal);
  expect_decoded<double>(fovea::FullAttention{{.causal = true, .soft_cap = 3}}, causal);
  expect_decoded<float>(fovea::LocalAttention{{.left = 5, .right = 0}}, band(5, 0));
  expect_decoded<double>(
      fovea::FixedAttention{{.stride = 8, .summary = 2, .heads = fovea::HeadAssignment::merged}},
      causal);
  expect_decoded<float>(fovea::StridedAttention{{.stride = 8}}, causal);
}

/// Tensors of 16 bits have the scores of the floats that they are.
template <class H>
void expect_stored() {
  const AttentionShape shape{1, 2, 1, 37, 150, 5, 3};
  const fovea::FullAttention op{{.causal = true}};
  const Problem<float> problem = make_problem(softmax_case<float>("", op, all_pairs), shape);
  const auto stored = [](const Tensor<float>& x) {
    std::vector<H> all;
    for (const float value : x.values()) all.push_back(static_cast<H>(value));
    return all;
  };
  const auto widened = [](const Tensor<float>& x) {
    x.fill([&](Index b, Index h, Index n, Index d) {
      return static_cast<float>(static_cast<H>(x(b, h, n, d)));
    });
  };
  const std::vector<H> q = stored(problem.q), k = stored(problem.k), v = stored(problem.v);
  widened(problem.q);
  widened(problem.k);
  widened(problem.v);
  const Matrices<float> got(shape);
  AttentionScores<H> to{
      .raw = got.raw.view(), .logits = got.logits.view(), .weights = got.weights.view()};
  std::vector<H> out(37 * 2 * 3);
  to.out = View<H>(out.data(), problem.out_shape());
  fovea::attention_scores<H>(op,
                             {.q = View<const H>(q.data(), problem.q.shape()),
                              .k = View<const H>(k.data(), problem.k.shape()),
                              .v = View<const H>(v.data(), problem.v.shape())},
                             to);
  const Matrices<float> expected(shape);
  fovea::attention_scores<float>(op, problem.inputs(), expected.to());
  EXPECT_TRUE(same_bits(got.raw.values(), expected.raw.values()));
  EXPECT_TRUE(same_bits(got.logits.values(), expected.logits.values()));
  EXPECT_TRUE(same_bits(got.weights.values(), expected.weights.values()));
  std::vector<H> forward(out.size());
  op.forward({.q = View<const H>(q.data(), problem.q.shape()),
              .k = View<const H>(k.data(), problem.k.shape()),
              .v = View<const H>(v.data(), problem.v.shape())},
             View<H>(forward.data(), problem.out_shape()));
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], forward[i]);
}

TEST(Scores, Of16BitTensors) {
  expect_stored<Eigen::half>();
  expect_stored<Eigen::bfloat16>();
}

/// A call that is right, of which a test spoils one thing.
struct BadScores : testing::Test {
  void expect(const std::string& message) {
    const std::vector<float> before = of.memory;
    const std::string got =
        refusal([&] { fovea::attention_scores<float>(FullAttention{}, in, to); });
    EXPECT_EQ(got, whole_message<FullAttention>(message));
    EXPECT_EQ(same_bits(before, of.memory), message != "accepted");
    of.memory = before;
    in = of.inputs();
    to = right;
  }

  Call<float> of;
  const AttentionScores<float> right{.out = of.out,
                                     .lse = of.lse,
                                     .logits = {of.at(6000), {2, 4, 6, 9}},
                                     .weights = {of.at(7000), {2, 4, 6, 9}}};
  AttentionScores<float> to = right;
  fovea::SoftmaxInputs<float> in = of.inputs();
};

/// Every refusal, with nothing written.
TEST_F(BadScores, Refusals) {
  expect("accepted");
  in.v = {};
  to.out = {};
  expect("accepted");
  in.v = {};
  expect("v is required: it was not given, or was passed without memory");
  in.k = {of.at(1000), {2, 2, 8, 5}};
  expect("v has 9 rows; expected 8, the rows of k");
  to.weights = {of.at(7000), {2, 4, 6, 8}};
  expect("weights has shape 2x4x6x8; expected 2x4x6x9, to match the inputs");
  to.logits = {of.at(1010), {2, 4, 6, 9}};
  expect("logits overlaps k; outputs must not alias inputs or each other");
  to.logits = {of.at(3010), {2, 4, 6, 9}};
  expect("logits overlaps out; outputs must not alias inputs or each other");
  to.logits = {of.at(4010), {2, 4, 6, 9}};
  expect("logits overlaps lse; outputs must not alias inputs or each other");
  to.weights = {of.at(6100), {2, 4, 6, 9}};
  expect("weights overlaps logits; outputs must not alias inputs or each other");
  to.raw = {of.at(8045), {2, 4, 6, 9}, {216, 54, -9, 1}};
  expect("stride of rows of raw is -9; expected at least 0 in an output");
}

/// A step that is refused leaves the decoder as it was.
TEST(Scores, RefusalsOfDecoders) {
  const std::vector<float> numbers(4000, 1.0f);
  std::vector<float> written(100000, 2.0f);
  const std::vector<float> before = written;
  auto decoder = fovea::LocalAttention{{.left = 3, .right = 0}}.decoder<float>(
      {.batch = 1, .query_heads = 1, .key_heads = 1, .width = 2, .value_width = 2});
  const auto step = [&](Index rows, Index columns, const auto& spoil) {
    const View<const float> x(numbers.data(), {1, 1, rows, 2});
    AttentionScores<float> to{.out = {written.data(), {1, 1, rows, 2}},
                              .weights = {written.data() + 1000, {1, 1, rows, columns}}};
    spoil(to);
    return refusal([&] { fovea::attention_scores<float>(decoder, {.q = x, .k = x, .v = x}, to); });
  };
  const auto nothing = [](auto&) {};
  EXPECT_EQ(step(2, 3, nothing),
            "LocalAttention: weights has shape 1x1x2x3; expected 1x1x2x2, to match the inputs");
  EXPECT_EQ(step(2, 2,
                 [&](auto& to) {
                   to.raw = {written.data() + 2000, {1, 1, 2, 2}};
                 }),
            "LocalAttention: raw must not be given: a decoder step does not write it");
  EXPECT_EQ(step(300, 300, nothing),
            "LocalAttention: q has 300 rows; expected fewer if logits or weights are given: their "
            "windows contain keys that the decoder drops within the step");
  EXPECT_EQ(decoder.length(), 0);
  EXPECT_EQ(written, before);
  EXPECT_EQ(step(2, 2, nothing), "accepted");
  EXPECT_EQ(decoder.length(), 2);
}

}  // namespace fovea_test::attention_scores
