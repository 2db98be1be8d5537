// SPDX-License-Identifier: MIT
/// \file
/// Operators and decoders wake threads for work that is worth it, and for no other.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "fovea/attention.hpp"
#include "support/executors.hpp"
#include "support/tensor.hpp"

namespace fovea_test::attention_small_work {

/// Attention of few tokens takes no thread, of many it does.
TEST(SmallWork, OperatorsEstimateTheirWork) {
  Index calls = 0;
  const CountsCalls executor{calls};
  const auto run = [&](Index n) {
    const Tensor<float> x({1, 2, n, 16}, {});
    const Tensor<float> out(x.shape()), lse({1, 2, n, 1}), d_q(x.shape());
    const fovea::FullAttention op;
    calls = 0;
    op.forward({x.view(), x.view(), x.view()}, out.view(), {.lse = lse.view()}, executor);
    const Index forward = calls;
    op.backward({x.view(), x.view(), x.view()}, out.view(), {.lse = lse.view()}, x.view(),
                {.q = d_q.view()}, executor);
    return std::pair(forward > 0, calls > forward);
  };
  EXPECT_EQ(run(64), std::pair(false, false));
  EXPECT_EQ(run(400), std::pair(true, true));
}

/// The other families, with 16 tokens and with many.
TEST(SmallWork, EveryFamilyEstimatesItsWork) {
  Index calls = 0;
  const CountsCalls executor{calls};
  const auto run = [&](Index n) {
    const Tensor<float> x({1, 8, n, 16}, {}), sketch({1, 1, n, 4}, {}), dominant({1, 8, n, 2}, {});
    const Tensor<float> out(x.shape());
    dominant.fill([](Index, Index, Index, Index) { return 0.5f; });
    const fovea::IndexTensor lists({1, 8, n, 1});  // of key 0
    std::vector<bool> threads;
    const auto tells = [&](const auto& op, const auto& inputs) {
      calls = 0;
      op.forward(inputs, out.view(), {}, executor);
      threads.push_back(calls > 0);
    };
    const View<const float> q = x.view();
    tells(fovea::LinearAttention<fovea::EluPlusOne>{}, fovea::LinearInputs<float>{q, q, q});
    tells(fovea::FmmOneKernel{{.band = fovea::kBand5}}, fovea::FmmInputs<float>{q, q, q});
    tells(fovea::IndexedAttention{},
          fovea::IndexedInputs<float>{.q = q, .k = q, .v = q, .indices = lists.view()});
    tells(fovea::SmartBirdAttention{},
          fovea::SmartBirdInputs<float>{
              .q = q, .k = q, .v = q, .sketch_q = sketch.view(), .sketch_k = sketch.view()});
    tells(fovea::FsatAttention{{.max_length = n}},
          fovea::FsatInputs<float>{.q = q, .k = q, .v = q, .dominant = dominant.view()});
    return threads;
  };
  EXPECT_EQ(run(16), std::vector<bool>(5, false));
  EXPECT_EQ(run(4096), std::vector<bool>(5, true));
}

/// One query is less work than a block of them, but most of it is reading the keys.
TEST(SmallWork, ReadingKeysCounts) {
  Index calls = 0;
  const CountsCalls executor{calls};
  const auto run = [&](Index keys) {
    const Tensor<float> q({1, 8, 1, 16}, {}), k({1, 8, keys, 16}, {});
    const Tensor<float> out(q.shape());
    const fovea::FullAttention op;
    calls = 0;
    op.forward({q.view(), k.view(), k.view()}, out.view(), {}, executor);
    const Index forward = calls;
    auto decoder = op.decoder<float>(
        {.batch = 1, .query_heads = 8, .key_heads = 8, .width = 16, .value_width = 16});
    decoder.append(k.view(), k.view());
    decoder.step({q.view()}, out.view(), {}, executor);
    return std::pair(forward > 0, calls > forward);
  };
  EXPECT_EQ(run(1024), std::pair(false, false));
  EXPECT_EQ(run(4096), std::pair(true, true));
}

}  // namespace fovea_test::attention_small_work
