// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Ranks whose far fields or bands have different options are refused before they send unexpected
/// messages.
#include <gtest/gtest.h>

#include "fovea/attention/fmm.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/distributed/linear_backward.hpp"
#include "fovea/distributed/linear_forward.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_linear_differences {

using fovea::EluPlusOne;
using fovea::View;
using Linear = fovea::LinearAttention<EluPlusOne>;
using Fmm = fovea::FmmAttention<EluPlusOne>;

constexpr Index kRows = 40;  // of each rank

class LinearDifferences : public testing::Test {
 protected:
  LinearDifferences() {
    x_.fill(gaussian(1));
    out_.fill(constant(7));
  }
  void SetUp() override {
    if (size_ == 1) GTEST_SKIP() << "nobody to differ from";
  }

  template <class Op>
  fovea::InputsOf<Op, float> inputs() const {
    fovea::InputsOf<Op, float> in;
    in.q = in.k = in.v = x_.view();
    return in;
  }
  /// The messages on rank 0 and on all others, if rank 0 has the first of two operators.
  template <class Op>
  void expect_refused(const Op& first, const Op& second, const std::string& own,
                      const std::string& other) {
    const Op& op = is_first_ ? first : second;
    const std::string forward =
        refusal([&] { fovea::distributed::forward(op, inputs<Op>(), out_.view(), {}, rows_); });
    for (const float x : out_.values()) EXPECT_EQ(x, 7.0F);
    fovea::GradsOf<Op, float> grads;
    grads.q = d_q_.view();
    const View<const float> out(out_.view());
    const std::string backward = refusal(
        [&] { fovea::distributed::backward(op, inputs<Op>(), out, {}, out, grads, rows_); });
    for (const std::string& text : {forward, backward}) {
      EXPECT_NE(text.find(own), std::string::npos) << text;
      EXPECT_NE(text.find(other), std::string::npos) << text;
    }
  }

  const int size_ = all_ranks().size();
  const bool is_first_ = all_ranks().rank() == 0;
  const Shape shape_ = {1, 1, kRows, 8};
  Tensor<float> x_{shape_}, out_{shape_}, d_q_{shape_};
  Sharding rows_{all_ranks(), RowLayout::contiguous(kRows* size_, size_)};
};

TEST_F(LinearDifferences, OfCausality) {
  expect_refused(Linear({.causal = true}), Linear(), "elu(x) + 1, options {true, 0, {0, 0}, 0}",
                 "elu(x) + 1");
}

TEST_F(LinearDifferences, OfBands) {
  Fmm narrow, wide;
  narrow.options.band = {3, 2};
  wide.options.band = {30, 2};
  expect_refused(narrow, wide, "options {{3, 2}, ", "options {{30, 2}, ");
  // A call that is right finds nothing left of those.
  EXPECT_EQ(
      refusal([&] { fovea::distributed::forward(narrow, inputs<Fmm>(), out_.view(), {}, rows_); }),
      "accepted");
}

}  // namespace fovea_test::distributed_linear_differences
