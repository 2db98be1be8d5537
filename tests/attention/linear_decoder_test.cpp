// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4)
/// \file
/// Decoders of linear attention, FMM attention and the delta rule beyond the conformance suite:
/// memory that stays, states that are rolled back and restored, and sequences so long that sums in
/// the scalar's own precision would have lost their digits. (fuzz/decoders_test.cpp forks them.)
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "attention/linear_decoder_stream.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/oracle/delta_rule.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_linear_decoder {

template <class T>
class LinearDecoder : public testing::Test {};
TYPED_TEST_SUITE(LinearDecoder, Scalars);

/// Of the chunk that is open, tokens can be taken back; nothing of them is left.
TYPED_TEST(LinearDecoder, RollsBackWithinTheChunk) {
  for_each_operator([](const auto& op, bool has_beta) {
    at_each_level([&] {
      const Stream<TypeParam> stream(kShape, has_beta);
      const Stream<TypeParam> wrong(kShape, has_beta,
                                    {gaussian(1), constant(NAN), constant(INFINITY)});
      const Tensor<TypeParam> expected = stream.forward(op);
      for (const Index keep : {97, 100, 127}) {
        auto decoder = op.template decoder<TypeParam>(stream.decoder_shape());
        stream.decode(decoder, keep, 5);
        wrong.decode(decoder, 128, 2);
        decoder.rollback(keep);
        EXPECT_EQ(decoder.length(), keep);
        stream.decode(decoder, 200, 1);
        EXPECT_TRUE(stream.has_rows(expected, 0, 200)) << op.name() << " from " << keep;
        for (const Index length : {keep, Index{-1}, Index{201}}) {
          EXPECT_EQ(refusal([&] { decoder.rollback(length); }),
                    std::string(op.name())
                        .append(": rollback is ")
                        .append(std::to_string(length))
                        .append("; expected 193 to 200, or 0: the state already contains earlier "
                                "tokens (keep a fork or a save)"));
        }
        decoder.rollback(0);
        EXPECT_EQ(decoder.length(), 0);
      }
    });
  });
}

/// From a state that was saved, and again from the first token; of widths 0, too.
TYPED_TEST(LinearDecoder, RestoresAndClears) {
  for_each_operator([](const auto& op, bool has_beta) {
    for (const auto& [width, value_width] : {std::pair{32, 64}, {0, 7}, {9, 0}, {0, 0}}) {
      const Stream<TypeParam> stream({3, 8, 4, 150, 150, width, value_width}, has_beta);
      const Tensor<TypeParam> expected = stream.forward(op);
      auto decoder = op.template decoder<TypeParam>(stream.decoder_shape());
      stream.decode(decoder, 100, 40);
      const auto saved = decoder.save();
      decoder.clear();
      stream.decode(decoder, 60, 60);
      EXPECT_TRUE(stream.has_rows(expected, 0, 60)) << op.name() << ", D " << width;
      decoder.restore(saved);
      EXPECT_EQ(decoder.save(), saved) << op.name() << ", D " << width << ", Dv " << value_width;
      stream.decode(decoder, 150, 50);
      EXPECT_TRUE(stream.has_rows(expected, 0, 150)) << op.name() << ", D " << width;
    }
  });
}

/// The steps are long enough that several threads run kernels at the same time, each with its own
/// scratch memory.
TYPED_TEST(LinearDecoder, SameBitsOnThreads) {
  fovea::ThreadPool pool(4);
  for_each_operator([&](const auto& op, bool has_beta) {
    const Stream<TypeParam> stream({2, 16, 8, 400, 400, 64, 64}, has_beta);
    const Tensor<TypeParam> expected = stream.forward(op);
    auto decoder = op.template decoder<TypeParam>(stream.decoder_shape());
    for (const Index first : {0, 200}) {
      decoder.step(stream.tokens(first, 200), cut(stream.out.view(), 2, first, 200), pool);
    }
    EXPECT_TRUE(stream.has_rows(expected, 0, 400)) << op.name();
  });
}

TYPED_TEST(LinearDecoder, NeedsConstantMemory) {
  for_each_operator([](const auto& op, bool has_beta) {
    const Stream<TypeParam> stream({1, 2, 1, 9000, 9000, 8, 8}, has_beta);
    auto decoder = op.template decoder<TypeParam>(stream.decoder_shape());
    stream.decode(decoder, 5000, 1);  // beyond all borders of segments
    const Index bytes = decoder.memory_bytes();
    stream.decode(decoder, 9000, 1);
    EXPECT_EQ(decoder.memory_bytes(), bytes) << op.name();
    EXPECT_LE(bytes, 1 << 20) << op.name();
  });
}

/// The number of tokens of the longest sequence: 65,536, or FOVEA_DECODED_TOKENS.
Index most_tokens() {
  const char* const text = std::getenv("FOVEA_DECODED_TOKENS");
  return text == nullptr ? 65'536 : std::stoll(text);
}

/// Whether the row at a position is compared: all of the first, some later, the last ones.
bool is_sampled(Index n, Index tokens) {
  return n < 100 || n % 4099 == 0 || (n & (n + 1)) == 0 || n > tokens - 40;
}

/// Sums of phi(k) v^T and of phi(k) token by token in Wide, for maps that are positive.
template <class T>
class RunningSums {
 public:
  using W = Wide<T>;

  RunningSums(OracleMap<T> map, Index width, Index value_width)
      : map_(std::move(map)),
        width_(as_size(width)),
        value_width_(as_size(value_width)),
        sum_(width_ * value_width_),
        size_(sum_.size()),
        normaliser_(width_) {}

  void add(const Problem<T>& p, Index n) {
    for (std::size_t d = 0; d < width_; ++d) {
      const W k = map_.value(W{p.k(0, 0, n, static_cast<Index>(d))});
      normaliser_[d] += k;
      for (std::size_t c = 0; c < value_width_; ++c) {
        const W v = p.v(0, 0, n, static_cast<Index>(c));
        sum_[d * value_width_ + c] += k * v;
        size_[d * value_width_ + c] += k * std::abs(v);
      }
    }
  }

  /// Adds the map's term of head h of row n to one element, and its gauge.
  void read(const Problem<T>& p, Index h, Index n, Index column, W& value, W& gauge) const {
    W den = 0;
    W numerator = 0;
    W size = 0;
    for (std::size_t d = 0; d < width_; ++d) {
      const W q = map_.value(W{p.q(0, h, n, static_cast<Index>(d))});
      den += q * normaliser_[d];
      numerator += q * sum_[d * value_width_ + as_size(column)];
      size += q * size_[d * value_width_ + as_size(column)];
    }
    value += numerator / den;
    gauge += size / den;
  }

 private:
  OracleMap<T> map_;
  std::size_t width_, value_width_;
  std::vector<W> sum_, size_;  // [D, Dv]
  std::vector<W> normaliser_;  // [D]
};

/// The state of the delta rule token by token in Wide, gauges as in oracle/delta_rule.hpp.
template <class T>
class RunningDelta {
 public:
  using W = Wide<T>;

  RunningDelta(Index width, Index value_width)
      : width_(as_size(width)),
        value_width_(as_size(value_width)),
        state_(width_ * value_width_),
        most_(state_.size()),
        error_size_(value_width_) {}

  void add(const Problem<T>& p, Index n) {
    const OracleShares<T> k(elu_plus_one<T>(), p.k.view(), 0, 0, n);
    for (std::size_t c = 0; c < value_width_; ++c) {
      W read = 0;
      for (std::size_t d = 0; d < width_; ++d) read += k.share[d] * state_[d * value_width_ + c];
      const W v = p.v(0, 0, n, static_cast<Index>(c));
      error_size_[c] = std::max(error_size_[c], std::abs(v) + std::abs(read));
      for (std::size_t d = 0; d < width_; ++d) {
        W& x = state_[d * value_width_ + c];
        x += W{(*p.beta)(0, 0, n, 0)} * k.share[d] * (v - read);
        most_[d * value_width_ + c] = std::max(most_[d * value_width_ + c], std::abs(x));
      }
    }
  }

  void read(const Problem<T>& p, Index h, Index n, Index column, W& value, W& gauge) const {
    const OracleShares<T> q(elu_plus_one<T>(), p.q.view(), 0, h, n);
    gauge += error_size_[as_size(column)];
    for (std::size_t d = 0; d < width_; ++d) {
      const std::size_t i = d * value_width_ + as_size(column);
      value += q.share[d] * state_[i];
      gauge += q.share[d] * most_[i];
    }
  }

 private:
  std::size_t width_, value_width_;
  std::vector<W> state_, most_;  // [D, Dv]
  std::vector<W> error_size_;    // [Dv]
};

/// Decodes all tokens one by one, and compares the sampled rows with read(head, row, column, value,
/// gauge) after add(row). \param data names a row in the table of worst errors
template <class T, class Op, class Add, class Read>
void expect_long_sequence(const Op& op, const Stream<T>& stream, const char* data, const Add& add,
                          const Read& read) {
  const AttentionShape& s = stream.problem.shape;
  const std::size_t count = as_size(s.query_heads * s.value_width);
  const Tensor<T> row({1, s.query_heads, 1, s.value_width});
  auto decoder = op.template decoder<T>(stream.decoder_shape());
  for (Index n = 0; n < s.keys; ++n) {
    decoder.step(stream.tokens(n, 1), row.view());
    add(n);
    if (!is_sampled(n, s.keys)) continue;
    Reference<T> expected{row.shape(), std::vector<Wide<T>>(count), std::vector<Wide<T>>(count)};
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<Index>(i);
      read(at / s.value_width, n, at % s.value_width, expected.value[i], expected.gauge[i]);
    }
    ASSERT_TRUE(
        within_ratio(row.values(), expected, kOutBound, {Op::name() + std::string(data), "out"}))
        << "token " << n;
  }
}

/// Values and features that do not cancel: sums grow with every token.
Fills one_sided() {
  const auto shifted = [](const Fill& fill) -> Fill {
    return [=](Index b, Index h, Index n, Index d) { return 1 + 0.3 * fill(b, h, n, d); };
  };
  const Fills any = gaussian_fills(1);
  return {any.q, shifted(any.k), shifted(any.v)};
}

TYPED_TEST(LinearDecoder, LongSequencesStayAccurate) {
  using T = TypeParam;
  const AttentionShape shape{1, 2, 1, most_tokens(), most_tokens(), 8, 8};
  for (const bool is_one_sided : {false, true}) {
    const Fills fills = is_one_sided ? one_sided() : gaussian_fills(1);
    const Stream<T> stream(shape, true, fills);
    const Stream<T> without_beta(shape, false, fills);
    const char* const data = is_one_sided ? " long, one-sided" : " long";
    at_each_level([&] {
      RunningSums<T> first(elu_plus_one<T>(), 8, 8);
      RunningSums<T> second(tanh_plus_one<T>(), 8, 8);
      expect_long_sequence(
          LinearAttention<EluPlusOne, fovea::TanhPlusOne>{{.causal = true}}, without_beta, data,
          [&](Index n) {
            first.add(stream.problem, n);
            second.add(stream.problem, n);
          },
          [&](Index h, Index n, Index c, Wide<T>& value, Wide<T>& gauge) {
            first.read(stream.problem, h, n, c, value, gauge);
            second.read(stream.problem, h, n, c, value, gauge);
          });
      RunningDelta<T> delta(8, 8);
      expect_long_sequence(
          DeltaRuleAttention<EluPlusOne>{}, stream, data,
          [&](Index n) { delta.add(stream.problem, n); },
          [&](Index h, Index n, Index c, Wide<T>& value, Wide<T>& gauge) {
            delta.read(stream.problem, h, n, c, value, gauge);
          });
    });
  }
}

}  // namespace fovea_test::attention_linear_decoder
