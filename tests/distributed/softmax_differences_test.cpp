// SPDX-License-Identifier: MIT
/// \file
/// Ranks that differ in what no sizes tell, in options or in who holds which rows, are refused
/// before they send what others do not expect.
#include <gtest/gtest.h>

#include "fovea/attention.hpp"
#include "fovea/distributed/longformer.hpp"
#include "fovea/distributed/redistribute.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_softmax_differences {

using fovea::FullAttention;
using fovea::LocalAttention;
using fovea::View;

constexpr Index kRows = 40;  // of each rank

class DistributedDifferences : public testing::Test {
 protected:
  DistributedDifferences() {
    x_.fill(gaussian(1));
    in_.q = in_.k = in_.v = x_.view();
  }
  void SetUp() override {
    if (size_ == 1) GTEST_SKIP() << "nobody to differ from";
  }

  template <class Op>
  std::string forward(const Op& op, const Rows& rows) {
    return refusal([&] { fovea::distributed::forward(op, in_, out_.view(), rows); });
  }
  template <class Op>
  std::string backward(const Op& op, const Rows& rows) {
    const View<const float> out(out_.view());
    fovea::SoftmaxGrads<float> grads;
    grads.q = d_q_.view();
    return refusal(
        [&] { fovea::distributed::backward(op, in_, out, {lse_.view()}, out, grads, rows); });
  }

  const int size_ = all_ranks().size();
  const bool is_first_ = all_ranks().rank() == 0;
  const Shape shape_ = {1, 1, kRows, 8};
  Tensor<float> x_{shape_}, out_{shape_}, d_q_{shape_}, lse_{{1, 1, kRows, 1}};
  fovea::SoftmaxInputs<float> in_;
  Rows rows_{all_ranks(), RowLayout::contiguous(kRows* size_, size_)};
  Rows dealt_{all_ranks(), RowLayout::block_cyclic(kRows* size_, size_, 10)};
  const std::string differ_ = ": ranks differ in who holds which rows, or in the options";
};

TEST_F(DistributedDifferences, OfOptions) {
  const FullAttention causal{{.causal = true}};
  const FullAttention full;
  EXPECT_EQ(forward(is_first_ ? causal : full, rows_), "FullAttention" + differ_);
  EXPECT_EQ(backward(is_first_ ? causal : full, rows_), "FullAttention" + differ_);
  const LocalAttention narrow{{.left = 3}};
  const LocalAttention wide{{.left = 30}};
  EXPECT_EQ(forward(is_first_ ? narrow : wide, rows_), "LocalAttention" + differ_);
  EXPECT_EQ(forward(narrow, rows_), "accepted");
}

TEST_F(DistributedDifferences, OfRowsOfTheirOwn) {
  fovea::LongformerInputs<float> in;
  in.q = in.k = in.v = in.global_q = in.global_k = in.global_v = x_.view();
  fovea::LongformerAttention op({.left = 4, .right = 4, .first_global = is_first_ ? 2 : 1});
  const auto refused = [&] {
    return refusal([&] { fovea::distributed::forward(op, in, out_.view(), {}, rows_); });
  };
  EXPECT_EQ(refused(), "LongformerAttention" + differ_);
  op.options.first_global = 2;
  EXPECT_EQ(refused(), "accepted");
}

TEST_F(DistributedDifferences, OfRows) {
  const std::string text = forward(FullAttention{}, is_first_ ? rows_ : dealt_);
  EXPECT_TRUE(text.ends_with(differ_)) << text;
  EXPECT_EQ(forward(FullAttention{}, dealt_), "accepted");
}

TEST_F(DistributedDifferences, OfWhatIsMoved) {
  const auto moved = [&](const Rows& from, const Rows& to) {
    return refusal([&] {
      fovea::distributed::redistribute(View<const float>(x_.view()), from, out_.view(), to);
    });
  };
  const std::string text = moved(is_first_ ? rows_ : dealt_, is_first_ ? dealt_ : rows_);
  EXPECT_TRUE(text.ends_with(differ_)) << text;
  const Tensor<double> x(shape_), y(shape_);
  const std::string types = refusal([&] {
    if (is_first_) {
      fovea::distributed::redistribute(View<const double>(x.view()), rows_, y.view(), dealt_);
    } else {
      fovea::distributed::redistribute(View<const float>(x_.view()), rows_, out_.view(), dealt_);
    }
  });
  EXPECT_NE(types.find("8 bytes a number"), std::string::npos) << types;
  EXPECT_EQ(moved(rows_, dealt_), "accepted");
}

}  // namespace fovea_test::distributed_softmax_differences
