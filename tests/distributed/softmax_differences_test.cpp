// SPDX-License-Identifier: MIT
// fovea_test(RANKS FULL)
/// \file
/// Differences between ranks that sizes do not show, in options or layouts, are refused before
/// unexpected messages are sent.
#include <gtest/gtest.h>

#include "fovea/attention.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/indexed_forward.hpp"
#include "fovea/distributed/longformer.hpp"
#include "fovea/distributed/redistribute.hpp"
#include "fovea/distributed/reformer.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_decoder.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_softmax_differences {

using fovea::FullAttention;
using fovea::LocalAttention;
using fovea::SparseAttention;
using fovea::View;

constexpr Index kRows = 40;  // of each rank
constexpr fovea::DecoderShape kDecoded = {
    .query_heads = 1, .key_heads = 1, .width = 8, .value_width = 8};

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
  std::string forward(const Op& op, const Sharding& rows) {
    return refusal([&] { fovea::distributed::forward(op, in_, out_.view(), rows); });
  }
  template <class Op>
  std::string backward(const Op& op, const Sharding& rows) {
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
  Sharding rows_{all_ranks(), RowLayout::contiguous(kRows* size_, size_)};
  Sharding dealt_{all_ranks(), RowLayout::block_cyclic(kRows* size_, size_, 10)};
  const std::string differ_ = ": ranks differ in their row layouts or options";
};

TEST_F(DistributedDifferences, OfOptions) {
  const auto said = [&](const auto& odd, const auto& others, const std::string& options) {
    const auto& op = is_first_ ? others : odd;
    for (const std::string& refused : {forward(op, rows_), backward(op, rows_)}) {
      EXPECT_NE(refused.find(options + ", where rank 0 calls " + op.name()), std::string::npos)
          << refused;
    }
  };
  const FullAttention full;
  said(FullAttention{{.causal = true, .window = {5, 5}}}, full,
       ", options {true, {5, 5}, {}, 0, {}, {0}}");
  said(LocalAttention{{.left = 30}}, LocalAttention{{.left = 3}},
       ", options {30, 0, {}, 0, {}, {0}}");
  said(LocalAttention{{.left = 3, .scale = 0.25}}, LocalAttention{{.left = 3}},
       ", options {3, 0, {0.25}, 0, {}, {0}}");
  said(LocalAttention{{.soft_cap = 30}}, LocalAttention{}, ", options {0, 0, {}, 0, {30}, {0}}");
  said(LocalAttention{{.dropout = {0.5, 7}}}, LocalAttention{{.dropout = {0.5, 8}}},
       ", options {0, 0, {}, 0, {}, {0.5, 7}}");
  EXPECT_EQ(forward(FullAttention{{.scale = 0.25}}, rows_), "accepted");
  // Nothing is drawn.
  const FullAttention seeded{{.dropout = {0, 7}}};
  EXPECT_EQ(forward(is_first_ ? full : seeded, rows_), "accepted");
}

/// Only the last rank, which has the last rows, has a different option under which it sees the same
/// keys, so messages are the same.
TEST_F(DistributedDifferences, OfTheLastRankAlone) {
  const bool is_last = all_ranks().rank() + 1 == size_;
  out_.fill(constant(7));
  const std::string refused = forward(FullAttention{{.causal = !is_last}}, rows_);
  EXPECT_NE(refused.find("rank " + std::to_string(size_ - 1) + " calls FullAttention.forward"),
            std::string::npos)
      << refused;
  for (const float x : out_.values()) EXPECT_EQ(x, 7);
  EXPECT_NE(backward(FullAttention{{.causal = !is_last}}, rows_), "accepted");
}

/// User patterns are identified by hashes, not by text.
TEST_F(DistributedDifferences, OfPatterns) {
  const bool is_last = all_ranks().rank() + 1 == size_;
  const SparseAttention causal{{.patterns = {fovea::Causal{}}}};
  const SparseAttention dense{{.patterns = {fovea::Dense{}}}};
  const SparseAttention& op = is_last ? dense : causal;
  EXPECT_EQ(forward(op, rows_), "SparseAttention" + differ_);
  EXPECT_EQ(backward(op, rows_), "SparseAttention" + differ_);
  fovea::distributed::SoftmaxDecoder<SparseAttention, float> decoder(op, kDecoded, all_ranks());
  fovea::SoftmaxInputs<float> in;
  in.q = in.k = in.v = x_.view();  // rows see others' tokens if dense
  EXPECT_EQ(refusal([&] { decoder.step(in, out_.view()); }), "SparseAttention" + differ_);
}

/// A slope of ALiBi is part of what is called, too.
TEST_F(DistributedDifferences, OfSlopes) {
  const float slope = is_first_ ? 0.5F : 0.25F;
  in_.alibi_slopes = {&slope, 1};
  const std::string refused = forward(FullAttention{}, rows_);
  EXPECT_NE(refused.find(", ALiBi {0.25}, where rank 0 calls"), std::string::npos) << refused;
}

TEST_F(DistributedDifferences, OfOptionsOfOtherOperators) {
  const auto said = [&](const std::string& text, const auto& odd, const auto& others,
                        const auto& in) {
    const auto& op = is_first_ ? others : odd;
    const std::string refused =
        refusal([&] { fovea::distributed::forward(op, in, out_.view(), rows_); });
    EXPECT_NE(refused.find(text + ", where rank 0 calls " + op.name()), std::string::npos)
        << refused;
    EXPECT_EQ(refusal([&] { fovea::distributed::forward(odd, in, out_.view(), rows_); }),
              "accepted");
  };
  fovea::ReformerInputs<float> hashed;
  hashed.qk = hashed.v = x_.view();
  const fovea::ReformerOptions few{.chunk = 4, .rounds = 1, .buckets = 2};
  fovea::ReformerOptions seeded = few;
  seeded.seed = 5;
  said(", options {4, 1, 2, false, 0, true, false, {}, 5}", fovea::ReformerAttention(seeded),
       fovea::ReformerAttention(few), hashed);
  Tensor<Index> lists({1, 1, kRows, 1});
  for (Index n = 0; n < kRows; ++n) lists(0, 0, n, 0) = 0;
  fovea::IndexedInputs<float> listed;
  listed.q = listed.k = listed.v = x_.view();
  listed.indices = lists.view();
  said(", options {{}, true, 0}", fovea::IndexedAttention{{.causal = true}},
       fovea::IndexedAttention{}, listed);
  fovea::SmartBirdInputs<float> sketched;
  sketched.q = sketched.k = sketched.v = sketched.sketch_q = sketched.sketch_k = x_.view();
  said(", options {3, 0, 0, false, 0, {}, {2}, 0}",
       fovea::SmartBirdAttention{{.keys_per_row = 3, .sketch_scale = 2}},
       fovea::SmartBirdAttention{{.keys_per_row = 3}}, sketched);
  fovea::FsatInputs<float> edged;
  edged.q = edged.k = edged.v = x_.view();
  Tensor<float> dominant({1, 1, kRows, 2});
  dominant.fill([](Index, Index, Index n, Index) { return static_cast<double>(n); });
  edged.dominant = dominant.view();
  fovea::FsatOptions wide{.max_length = kRows * size_};
  wide.truncate_gradient = false;
  const fovea::FsatAttention plain(wide);
  wide.variance = 4;
  said(", options {" + std::to_string(kRows * size_) + ", {4}, 0, {}, 0, 0, false, {}}",
       fovea::FsatAttention(wide), plain, edged);
}

TEST_F(DistributedDifferences, OfRowsOfARank) {
  fovea::LongformerInputs<float> in;
  in.q = in.k = in.v = in.global_q = in.global_k = in.global_v = x_.view();
  fovea::LongformerAttention op({.left = 4, .right = 4, .first_global = is_first_ ? 2 : 1});
  const auto refused = [&] {
    return refusal([&] { fovea::distributed::forward(op, in, out_.view(), {}, rows_); });
  };
  EXPECT_NE(refused().find("LongformerAttention.forward"), std::string::npos);
  op.options.first_global = 2;
  EXPECT_EQ(refused(), "accepted");
}

TEST_F(DistributedDifferences, OfRows) {
  const std::string text = forward(FullAttention{}, is_first_ ? rows_ : dealt_);
  EXPECT_TRUE(text.ends_with(differ_)) << text;
  EXPECT_EQ(forward(FullAttention{}, dealt_), "accepted");
}

TEST_F(DistributedDifferences, OfRedistributedTensors) {
  const auto moved = [&](const Sharding& from, const Sharding& to) {
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
  EXPECT_NE(types.find("8 bytes per number"), std::string::npos) << types;
  EXPECT_EQ(moved(rows_, dealt_), "accepted");
}

}  // namespace fovea_test::distributed_softmax_differences
