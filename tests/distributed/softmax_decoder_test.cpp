// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Decoders whose keys are spread over ranks beyond drawn_decoder_test.cpp: what they store, and
/// what they refuse.
#include "fovea/distributed/softmax_decoder.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "attention/decoding.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_softmax_decoder {

using fovea::distributed::SoftmaxDecoder;

const FullAttention kCausal{{.causal = true}};

template <class T, class Op>
SoftmaxDecoder<Op, T> sharded_decoder(const Op& op, const DecoderShape& shape) {
  return {op, shape, all_ranks()};
}

/// A rank stores its share, and sends the running softmaxes of its segments to each other rank.
TEST(DistributedDecoder, StoresItsShareOfTheTokens) {
  const Index keys = 8 * fovea::kKeySegment;
  const TokenTensors<float> tokens({1, 2, 2, keys, keys, 16, 16});
  auto decoder = sharded_decoder<float>(kCausal, tokens.decoder_shape());
  EXPECT_EQ(decoder.block(), fovea::kKeySegment);
  decoder.reserve(keys);
  decoder.append(tokens.keys(0, keys), tokens.values(0, keys));
  const Sharding rows(all_ranks(), decoder.layout(keys));
  EXPECT_EQ(decoder.memory_bytes(), std::max<Index>(rows.own_count(), 16) * 2 * 32 * 4);
  const auto sent = decoder.step(tokens.queries(keys - 1, 1, keys), tokens.out_rows(keys - 1, 1));
  const Index segments = rows.own_count() / fovea::kKeySegment;
  EXPECT_EQ(sent.bytes_sent, (all_ranks().size() - 1) * segments * 2 * (3 * 16 + 16) * 4);
  EXPECT_EQ(sharded_decoder<float>(fovea::StridedAttention{{.stride = 6}}, tokens.decoder_shape())
                .block(),
            6 * fovea::kKeySegment);
}

/// Refused on all ranks.
class DistributedDecoderErrors : public SpoiltStep<SoftmaxDecoder<FullAttention, float>> {
 protected:
  DistributedDecoderErrors()
      : SpoiltStep(
            sharded_decoder<float>(FullAttention{}, TokenTensors<float>(kShape).decoder_shape())) {}

  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": FullAttention: ";
};

TEST_F(DistributedDecoderErrors, OneRankWithAWrongTensor) {
  if (is_last) in_.q = {in_.q.data(), {2, 4, 2, 4}};
  expect(begin + "q has width 4; expected 5, the width of the decoder");
  if (is_last) in_.v = {in_.v.data(), {2, 2, 1, 3}};
  expect(begin + "v has 1 row; expected 2, the rows of k");
  if (is_last) out_ = tokens_.out_rows(10, 1);
  expect(begin + "out has shape 2x4x1x3; expected 2x4x2x3, to match the inputs");
  if (is_last) out_ = {const_cast<float*>(in_.k.data()), {2, 4, 2, 3}};
  expect(begin + "out overlaps k; outputs must not alias inputs or each other");
  const std::vector<Index> lengths = {12, 12};
  if (is_last) in_.key_lengths = lengths;
  expect(begin + "key_lengths must not be given: a decoder tracks its own length");
}

TEST_F(DistributedDecoderErrors, RanksThatMakeDifferentCalls) {
  if (last == 0) GTEST_SKIP() << "one rank does one thing";
  const std::string of =
      " after 10 tokens, 4 bytes per number, q 2x4x5, k 2x2x5, v 2x2x3 "
      "(batch, heads, width)";
  if (is_last) {
    in_.q = cut_logits(in_.q, 2, 0, 1);
    out_ = tokens_.out_rows(10, 1);
    saved_ = {};
  }
  expect("rank " + std::to_string(last) + " calls FullAttention.step of 1" + of +
         ", new tokens 2, where rank 0 calls FullAttention.step of 2" + of + ", new tokens 2");
  if (is_last) in_.k = in_.v = {};
  expect("rank " + std::to_string(last) + " calls FullAttention.step of 2" + of +
         ", new tokens 0, where rank 0 calls FullAttention.step of 2" + of + ", new tokens 2");
  EXPECT_EQ(refusal([&] { decoder_.rollback(is_last ? 3 : 4); }),
            "rank " + std::to_string(last) + " calls FullAttention.rollback to 3" + of +
                ", where rank 0 calls FullAttention.rollback to 4" + of);
  EXPECT_EQ(decoder_.length(), 10);
}

TEST_F(DistributedDecoderErrors, OtherCalls) {
  EXPECT_EQ(refusal([&] { decoder_.rollback(11); }),
            "rank 0: FullAttention: rollback is 11; expected 0 to 10, the tokens in the decoder");
  EXPECT_EQ(refusal([&] { decoder_.reserve(-1); }),
            "rank 0: FullAttention: reserve is -1; expected at least 0");
  const View<const float> narrow(in_.k.data(), {2, 2, 2, 4});
  EXPECT_EQ(refusal([&] { decoder_.append(is_last ? narrow : in_.k, in_.v); }),
            begin + "k has width 4; expected 5, the width of the decoder");
  EXPECT_EQ(refusal([&] {
              decoder_.append_own({tokens_.keys(0, 3), tokens_.values(0, 3)}, 2);
            }),
            "rank 0: FullAttention: k has 3 rows; expected 2, the number of tokens on this rank");
  expect_as_before();
}

TEST_F(DistributedDecoderErrors, CallsThatNeedNoRanks) {
  const DecoderShape shape = tokens_.decoder_shape();
  const std::string bounded =
      "every head has a bounded window; keep the small cache on every rank, with op.decoder";
  EXPECT_EQ(refusal([&] { sharded_decoder<float>(LocalAttention{{.left = 70}}, shape); }),
            "rank 0: LocalAttention: " + bounded);
  EXPECT_EQ(refusal([&] { sharded_decoder<float>(fovea::FixedAttention{}, shape); }),
            "rank 0: FixedAttention: " + bounded);
  DecoderShape other = shape;
  if (is_last) other.key_heads = 3;
  EXPECT_EQ(refusal([&] { sharded_decoder<float>(FullAttention{}, other); }),
            begin + "key_heads is 3; expected a divisor of the 4 query_heads");
}

/// All ranks hear of it, and the tokens of the step are gone again.
TEST_F(DistributedDecoderErrors, AnExceptionInATask) {
  Breaking executor{all_ranks().rank() == 0};  // which keeps all tokens
  try {
    decoder_.step(in_, out_, saved_, executor);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 0: the thread broke");
  }
  Refusing refusing{is_last};
  EXPECT_EQ(refusal([&] { decoder_.step(in_, out_, saved_, refusing); }),
            "rank " + std::to_string(last) + ": Memory: in use");
  expect_as_before();
}

}  // namespace fovea_test::distributed_softmax_decoder
