// SPDX-License-Identifier: MIT
/// \file
/// The decoder of Smart Bird attention: the bits of `forward`, whatever the steps, and its errors.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "attention/sketch_problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_smart_bird_decoder {

using fovea::SmartBirdDecoder;

fovea::SmartBirdDecoderShape decoder_shape(const BirdSizes& s) {
  return {.batch = s.batch,
          .query_heads = s.heads,
          .key_heads = s.key_heads,
          .width = s.width,
          .value_width = s.value_width,
          .sketch_width = s.sketch_width};
}

/// Positions [first, first + count) of a problem, new tokens included.
template <class T>
AllInputs<T> tokens(const BirdProblem<T>& p, Index first, Index count) {
  AllInputs<T> in{cut(p.q.view(), 2, first, count), cut(p.k.view(), 2, first, count),
                  cut(p.v.view(), 2, first, count)};
  in.sketch_q = cut(p.sketch_q.view(), 2, first, count);
  in.sketch_k = cut(p.sketch_k.view(), 2, first, count);
  return in;
}

template <class T>
void expect_forward(const SmartBirdOptions& options, Index piece, Index width = 16,
                    Index value_width = 12) {
  const BirdProblem<T> problem({.batch = 2,
                                .heads = 4,
                                .key_heads = 2,
                                .queries = 75,
                                .keys = 75,
                                .width = width,
                                .value_width = value_width});
  const SmartBirdAttention op(options);
  const Tensor<T> whole(problem.out_shape());
  const Tensor<T> whole_lse(problem.row_shape());
  IndexTensor whole_keys({2, 4, 75, options.keys_per_row});
  op.forward(problem.inputs(), whole.view(), AllSaved<T>{whole_lse.view(), whole_keys.view()});
  SmartBirdDecoder<T> decoder = op.template decoder<T>(decoder_shape(problem.sizes));
  const Tensor<T> out(problem.out_shape());
  const Tensor<T> lse(problem.row_shape());
  IndexTensor keys({2, 4, 75, options.keys_per_row});
  fovea::ThreadPool pool(2);
  AnyExecutor threads = AnyExecutor::of(pool);
  while (decoder.length() < 75) {
    const Index first = decoder.length();
    const Index count = std::min(piece, 75 - first);
    const AllSaved<T> saved{cut(lse.view(), 2, first, count), cut(keys.view(), 2, first, count)};
    decoder.step(tokens(problem, first, count), cut(out.view(), 2, first, count), saved, threads);
  }
  EXPECT_TRUE(same_bits(out.values(), whole.values()));
  EXPECT_TRUE(same_bits(lse.values(), whole_lse.values()));
  EXPECT_EQ(values_of(keys.view()), values_of(whole_keys.view()));
}

TEST(SmartBirdDecoding, StepsMatchForward) {
  for (const SamplingPolicy policy :
       {SamplingPolicy::squared_inverse_log, SamplingPolicy::top_k, SamplingPolicy::random}) {
    for (const Index piece : {1, 13, 75}) {
      expect_forward<float>({.keys_per_row = 9, .policy = policy, .seed = 4, .causal = true},
                            piece);
    }
  }
  expect_forward<double>({.keys_per_row = 5, .causal = true}, 4);
}

/// A row chooses among thousands of keys with few draws, which takes less time than waking a thread
/// saves, unless there are many heads, or each of many keys draws. The bits are always the same.
TEST(SmartBirdDecoding, WakesThreadsForMuchWork) {
  const auto wakes = [](SamplingPolicy policy, Index batch, Index heads, Index keys) {
    const BirdProblem<float> problem(
        {.batch = batch, .heads = heads, .key_heads = 1, .queries = 1, .keys = keys});
    const AllInputs<float> all = problem.inputs();
    const SmartBirdAttention op({.policy = policy, .seed = 4, .causal = true});
    auto decoder = op.decoder<float>(decoder_shape(problem.sizes));
    decoder.append({.k = all.k, .v = all.v, .sketch_k = all.sketch_k});
    AllInputs<float> row;
    row.q = all.q;
    row.sketch_q = all.sketch_q;
    const Tensor<float> serial(problem.out_shape());
    const Tensor<float> threaded(problem.out_shape());
    decoder.step(row, serial.view());
    Index calls = 0;
    decoder.step(row, threaded.view(), {}, CountsCalls{calls});
    EXPECT_TRUE(same_bits(serial.values(), threaded.values()));
    return calls > 0;
  };
  EXPECT_FALSE(wakes(SamplingPolicy::squared_inverse_log, 1, 8, 4096));
  EXPECT_TRUE(wakes(SamplingPolicy::squared_inverse_log, 5, 32, 64));
  EXPECT_TRUE(wakes(SamplingPolicy::random, 2, 8, 4096));
}

TEST(SmartBirdDecoding, ZeroWidths) {
  for (const Index piece : {1, 20}) {
    for (const auto& [width, value_width] : {std::pair{0, 12}, std::pair{16, 0}, std::pair{0, 0}}) {
      expect_forward<float>({.keys_per_row = 9, .causal = true}, piece, width, value_width);
    }
  }
}

/// Without `causal` a step sees all keys so far, as forward of its queries does.
TEST(SmartBirdDecoding, SeesAllKeysIfNotCausal) {
  const BirdProblem<float> problem({.queries = 40, .keys = 40});
  const SmartBirdAttention op({.keys_per_row = 6});
  auto decoder = op.decoder<float>(decoder_shape(problem.sizes));
  const AllInputs<float> all = problem.inputs();
  decoder.append(all.k, all.v, all.sketch_k);
  AllInputs<float> last;
  last.q = cut(all.q, 2, 33, 7);
  last.sketch_q = cut(all.sketch_q, 2, 33, 7);
  const Tensor<float> out({1, 3, 7, 12});
  decoder.step(last, out.view());
  AllInputs<float> in = all;
  in.q = last.q;
  in.sketch_q = last.sketch_q;
  const Tensor<float> expected({1, 3, 7, 12});
  op.forward(in, expected.view());
  EXPECT_TRUE(same_bits(out.values(), expected.values()));
}

TEST(SmartBirdDecoding, ForksAndRollsBack) {
  const BirdProblem<float> problem({.queries = 60, .keys = 60});
  const SmartBirdAttention op({.keys_per_row = 4, .causal = true});
  const Tensor<float> whole(problem.out_shape());
  op.forward(problem.inputs(), whole.view());
  auto decoder = op.decoder<float>(decoder_shape(problem.sizes));
  const Tensor<float> out(problem.out_shape());
  const auto step = [&](auto& at, Index count) {
    const Index first = at.length();
    at.step(tokens(problem, first, count), cut(out.view(), 2, first, count));
  };
  step(decoder, 30);
  auto other = decoder.fork();
  EXPECT_LE(other.memory_bytes(), decoder.memory_bytes());
  step(decoder, 20);
  decoder.rollback(17);
  step(decoder, 43);
  EXPECT_TRUE(same_bits(out.values(), whole.values()));
  EXPECT_EQ(other.length(), 30);
  step(other, 30);
  EXPECT_TRUE(same_bits(out.values(), whole.values()));
  other.clear();
  other.reserve(60);
  step(other, 60);
  EXPECT_TRUE(same_bits(out.values(), whole.values()));
}

TEST(SmartBirdDecoding, RefusesMismatches) {
  const BirdProblem<float> problem({.queries = 10, .keys = 10});
  const SmartBirdAttention op({.keys_per_row = 4, .causal = true});
  auto decoder = op.decoder<float>(decoder_shape(problem.sizes));
  Tensor<float> out({1, 3, 2, 12});
  out.fill(constant(5));
  AllInputs<float> in = tokens(problem, 0, 2);
  const auto expect = [&](const std::string& message) {
    EXPECT_EQ(refusal([&] { decoder.step(in, out.view()); }), "SmartBirdAttention: " + message);
    EXPECT_EQ(out(0, 2, 1, 11), 5) << "written before: " << message;
    EXPECT_EQ(decoder.length(), 0);
    in = tokens(problem, 0, 2);
  };
  in.sketch_k = {};
  expect("sketch_k is required: [B, 1, n, d], the keys of the sketch");
  in.sketch_q = cut(problem.sketch_q.view(), 2, 0, 1);
  expect("sketch_q has 1 row; expected 2, the rows of q");
  in.sketch_k = cut(cut(problem.sketch_k.view(), 2, 0, 2), 3, 0, 3);
  expect("sketch_k has width 3; expected 4, the sketch_width of the decoder");
  const Tensor<float> two({2, 1, 2, 4});
  in.sketch_k = two.view();
  expect("sketch_k has batch 2; expected 1, the batch of the decoder");
  in = tokens(problem, 0, 1);
  in.q = cut(problem.q.view(), 2, 0, 2);
  in.sketch_q = cut(problem.sketch_q.view(), 2, 0, 2);
  expect("q has 2 rows; expected at most 1, the tokens in the decoder");
  EXPECT_EQ(refusal([&] {
              decoder.append({cut(problem.k.view(), 2, 0, 2), cut(problem.v.view(), 2, 0, 2), {}});
            }),
            "SmartBirdAttention: sketch_k is required: [B, 1, n, d], the keys of the sketch");
  for (const auto& [name, tensor] : {std::pair{"k", &problem.k}, std::pair{"v", &problem.v}}) {
    const AllSaved<float> saved{View<float>(tensor->view().data(), {1, 3, 2, 1}), {}};
    EXPECT_EQ(refusal([&] { decoder.step(in, out.view(), saved); }),
              std::string("SmartBirdAttention: lse overlaps ") + name +
                  "; outputs must not alias inputs or each other");
  }
  decoder.rollback(0);
  EXPECT_EQ(decoder.length(), 0);
  EXPECT_EQ(refusal([&] { decoder.rollback(1); }),
            "SmartBirdAttention: rollback is 1; expected 0, the tokens in the decoder");
  EXPECT_EQ(refusal([&] {
              static_cast<void>(SmartBirdAttention({.alignment = fovea::CausalAlignment::top_left})
                                    .decoder<float>(decoder_shape(problem.sizes)));
            }),
            "SmartBirdAttention: alignment is top_left; expected bottom_right or key_length: the "
            "last query of a decoder is its last token");
}

}  // namespace fovea_test::attention_smart_bird_decoder
