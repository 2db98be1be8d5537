// SPDX-License-Identifier: MIT
/// \file
/// Decoders of linear attention, FMM attention and the delta rule beyond the conformance suite:
/// memory that stays, states that are saved, forked and rolled back, and sequences so long that
/// sums in the scalar's own precision would have lost their digits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "attention/conformance.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/oracle/delta_rule.hpp"
#include "support/refusal.hpp"

namespace fovea_test {
namespace {

using fovea::DecoderShape;
using fovea::DeltaRule;
using fovea::DeltaRuleAttention;
using fovea::EluPlusOne;
using fovea::FmmAttention;
using fovea::LinearAttention;

/// A sequence and the rows that a decoder makes of it.
template <class T>
struct Stream {
  Case<T> plain = softmax_case<T>("plain", fovea::FullAttention{}, all_pairs);
  Problem<T> problem;
  Tensor<T> beta;
  Tensor<T> out;
  bool has_beta;

  Stream(const AttentionShape& shape, bool with_beta, const Fills& fills)
      : problem(make_problem(plain, shape, 1, fills)),
        beta({shape.batch, shape.key_heads, shape.keys, 1}),
        out(problem.out_shape()),
        has_beta(with_beta) {
    beta.fill(beta_fill(1));
  }
  Stream(const AttentionShape& shape, bool with_beta)
      : Stream(shape, with_beta, gaussian_fills(1)) {}

  DecoderShape decoder_shape() const {
    const AttentionShape& s = problem.shape;
    return {s.batch, s.query_heads, s.key_heads, s.width, s.value_width};
  }

  AllInputs<T> tokens(Index first, Index count) const {
    AllInputs<T> in{cut(problem.q.view(), 2, first, count), cut(problem.k.view(), 2, first, count),
                    cut(problem.v.view(), 2, first, count)};
    if (has_beta) in.beta = cut(beta.view(), 2, first, count);
    return in;
  }

  /// Tokens up to `end`, in pieces of this length.
  template <class D>
  void decode(D& decoder, Index end, Index piece = 1) const {
    while (decoder.length() < end) {
      const Index first = decoder.length();
      const Index count = std::min(piece, end - first);
      decoder.step(tokens(first, count), cut(out.view(), 2, first, count));
    }
  }

  /// All rows by `forward`.
  template <class Op>
  std::vector<T> forward(const Op& op) const {
    const Tensor<T> expected(out.shape());
    op.forward(tokens(0, problem.shape.keys), expected.view());
    return expected.values();
  }

  /// Whether rows [first, last) have the bits of `expected`.
  testing::AssertionResult has_rows(const std::vector<T>& expected, Index first, Index last) const {
    const Tensor<T> all(out.shape());
    std::size_t i = 0;
    for_each_index(out.shape(),
                   [&](Index b, Index h, Index n, Index d) { all(b, h, n, d) = expected[i++]; });
    const auto rows = [&](const Tensor<T>& x) {
      const View<T> part = cut(x.view(), 2, first, last - first);
      std::vector<T> values;
      for_each_index(part.shape(), [&](Index b, Index h, Index n, Index d) {
        values.push_back(part(b, h, n, d));
      });
      return values;
    };
    return same_bits(rows(out), rows(all));
  }
};

/// Calls f(op, whether it reads beta) with causal operators of every kind.
template <class F>
void for_each_operator(F&& f) {
  f(LinearAttention<EluPlusOne>{{.causal = true}}, false);
  f(LinearAttention<EluPlusOne, fovea::TanhPlusOne>{{.causal = true}}, false);
  f(FmmAttention<EluPlusOne>{{.near = {.left = 4}, .causal = true}}, false);
  f(FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{{.near = {.left = 40}}}, true);
  f(DeltaRuleAttention<EluPlusOne>{}, true);
}

template <class T>
class LinearDecoder : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearDecoder, Scalars);

constexpr AttentionShape kShape{2, 4, 2, 200, 200, 9, 7};

TYPED_TEST(LinearDecoder, ASavedStateGoesOn) {
  for_each_operator([](const auto& op, bool has_beta) {
    at_each_level([&] {
      const Stream<TypeParam> stream(kShape, has_beta);
      const std::vector<TypeParam> expected = stream.forward(op);
      for (const Index at : {0, 1, 31, 32, 33, 63, 64, 100}) {
        auto first = op.template decoder<TypeParam>(stream.decoder_shape());
        stream.decode(first, at, 7);
        const std::vector<std::byte> state = first.save();
        auto second = op.template decoder<TypeParam>(stream.decoder_shape());
        stream.decode(second, 50, 50);  // which the state takes the place of
        second.restore(state);
        EXPECT_EQ(second.length(), at);
        stream.out.fill(constant(0));
        stream.decode(second, 200, 3);
        EXPECT_TRUE(stream.has_rows(expected, at, 200)) << op.name() << " at " << at;
        EXPECT_EQ(first.length(), at);
      }
    });
  });
}

TYPED_TEST(LinearDecoder, WidthsOf0) {
  for_each_operator([](const auto& op, bool has_beta) {
    for (const auto& [width, value_width] : {std::pair{0, 7}, std::pair{9, 0}, std::pair{0, 0}}) {
      const Stream<TypeParam> stream({2, 4, 2, 70, 70, width, value_width}, has_beta);
      auto decoder = op.template decoder<TypeParam>(stream.decoder_shape());
      stream.decode(decoder, 40);
      auto restored = op.template decoder<TypeParam>(stream.decoder_shape());
      restored.restore(decoder.save());
      stream.decode(restored, 70, 15);
      EXPECT_EQ(restored.length(), 70);
      EXPECT_TRUE(stream.has_rows(stream.forward(op), 0, 70))
          << op.name() << ", D " << width << ", Dv " << value_width;
    }
  });
}

std::int64_t word(const std::vector<std::byte>& bytes, std::size_t at) {
  std::int64_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}
void set_word(std::vector<std::byte>& bytes, std::size_t at, std::int64_t number) {
  std::memcpy(bytes.data() + at, &number, sizeof(number));
}

TYPED_TEST(LinearDecoder, RefusesStatesOfOthers) {
  using T = TypeParam;
  for_each_operator([](const auto& op, bool has_beta) {
    const Stream<T> stream(kShape, has_beta);
    auto decoder = op.template decoder<T>(stream.decoder_shape());
    stream.decode(decoder, 70, 20);
    std::vector<std::byte> state = decoder.save();
    DecoderShape wider = stream.decoder_shape();
    ++wider.width;
    auto other = op.template decoder<T>(wider);
    const std::string is = std::string(op.name()) + ": state is ";
    const std::string expected = "; expected the bytes that `save` of such a decoder gave";
    const std::string of_another = is + "of another operator, shape, scalar or version" + expected;
    EXPECT_EQ(refusal([&] { other.restore(state); }), of_another);
    const LinearAttention<fovea::EluMinusPlusOne, EluPlusOne, EluPlusOne> three{{.causal = true}};
    auto of_three = three.template decoder<T>(stream.decoder_shape());
    EXPECT_NE(refusal([&] { of_three.restore(state); }).find("of another operator"),
              std::string::npos);
    const auto message = [&](std::span<const std::byte> bytes) {
      return refusal([&] { decoder.restore(bytes); });
    };
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, state.size() - 1}) {
      EXPECT_EQ(message(std::span(state).first(size)), is + "cut off" + expected) << size;
    }
    constexpr std::size_t length = sizeof(fovea::LinearStateHeader{}.identity());
    for (const std::int64_t tokens : {Index{-1}, fovea::kMostDecoderTokens + 1}) {
      set_word(state, length, tokens);
      EXPECT_EQ(message(state), is + "of no length that there is" + expected) << tokens;
    }
    set_word(state, length, 70);
    state.push_back({});
    EXPECT_EQ(message(state), is + "with bytes behind its end" + expected);
    // As it was.
    EXPECT_EQ(decoder.length(), 70);
    stream.decode(decoder, 200, 9);
    EXPECT_TRUE(stream.has_rows(stream.forward(op), 0, 200)) << op.name();
  });
}

/// A saved state, spoilt in one of the ways that files are, or that someone may choose.
/// \param length where the number of tokens stands; behind the states stand that of the first token
/// held and how many they are
std::vector<std::byte> spoilt(std::vector<std::byte> state, std::size_t length, std::size_t held,
                              Draw& draw) {
  constexpr Index least = std::numeric_limits<Index>::min();
  constexpr Index most = std::numeric_limits<Index>::max();
  const auto size = static_cast<Index>(state.size());
  const auto extreme = [&] {
    constexpr Index one = 1;
    const Index few[] = {0, 1, 2, -1, 63, 64, 69, 70, 71, 100};
    const Index many[] = {least,     least + 1, most,          most - 1,      most / 2,
                          most / 4,  most / 8,  most / 16 + 1, most / 16 - 9, size,
                          one << 31, one << 32, one << 40};
    return draw(0, 1) == 0 ? few[draw(0, 9)] : many[draw(0, 12)];
  };
  const auto any_word = [&] { return as_size(draw(0, size / 8 - 1)) * 8; };
  switch (draw(0, 5)) {
    case 0:
      state.resize(as_size(draw(0, size - 1)));
      break;
    case 1:
      for (Index n = draw(1, 3); n > 0; --n) {
        state[as_size(draw(0, size - 1))] ^= static_cast<std::byte>(1 << draw(0, 7));
      }
      break;
    case 2:
      set_word(state, any_word(), extreme());
      break;
    case 3:  // all behind the header
      for (std::size_t i = length; i < state.size(); ++i) {
        state[i] = static_cast<std::byte>(draw(0, 255));
      }
      break;
    case 4:  // some bytes more, or the middle is gone
      if (draw(0, 1) == 0) {
        state.resize(state.size() + as_size(draw(1, 200)));
      } else {
        const Index from = draw(0, size - 1);
        state.erase(state.begin() + from, state.begin() + draw(from, size));
      }
      break;
    default: {  // tokens that end where they say, anywhere
      const std::int64_t tokens = extreme();
      set_word(state, length, tokens);
      if (held + 16 > state.size()) break;
      const std::int64_t rows = draw(0, 1) == 0 ? word(state, held + 8) : extreme();
      set_word(state, held + 8, rows);
      set_word(state, held,
               static_cast<std::int64_t>(static_cast<std::uint64_t>(tokens) -
                                         static_cast<std::uint64_t>(rows)));
    }
  }
  return state;
}

/// What a state that was taken, however it came about, must let be done.
template <class Decoder, class T>
void expect_usable(Decoder& decoder, const Decoder& fresh, const Stream<T>& stream) {
  const Index length = decoder.length();
  const Tensor<T> out({1, 2, 2, 2});
  EXPECT_EQ(refusal([&] { decoder.step(stream.tokens(0, 2), out.view()); }), "accepted") << length;
  Decoder fork = decoder.fork();
  Decoder restored = fresh.fork();
  const std::vector<std::byte> state = fork.save();
  EXPECT_EQ(refusal([&] { restored.restore(state); }), "accepted") << length;
  EXPECT_EQ(restored.save(), state);
  const Index back = length + 1;
  const bool is_back = refusal([&] { restored.rollback(back); }) == "accepted";
  EXPECT_EQ(restored.length(), is_back ? back : length + 2);
  EXPECT_EQ(refusal([&] { restored.step(stream.tokens(0, 1), cut(out.view(), 2, 0, 1)); }),
            "accepted");
  EXPECT_EQ(refusal([&] { decoder.rollback(0); }), "accepted");
  EXPECT_EQ(refusal([&] { decoder.step(stream.tokens(0, 2), out.view()); }), "accepted");
}

/// Bytes come from files: whatever they are, `restore` takes them or refuses them, and the decoder
/// stays whole. With sanitizers the test says more.
TYPED_TEST(LinearDecoder, RestoresOrRefusesAnyBytes) {
  using T = TypeParam;
  for_each_operator([](const auto& op, bool has_beta) {
    const Stream<T> stream({1, 2, 1, 200, 200, 3, 2}, has_beta);
    const auto fresh = op.template decoder<T>(stream.decoder_shape());
    const std::size_t length = sizeof(fovea::LinearStateHeader{}.identity());
    const std::size_t held = length + 8 + as_size(word(fresh.save(), 9 * 8));
    auto source = fresh.fork();
    int taken = 0;
    constexpr int rounds = 800;
    for (int round = 0; round < rounds; ++round) {
      if (round % 8 == 0) stream.decode(source, source.length() + 1);
      Draw draw(static_cast<std::uint64_t>(round));
      const std::vector<std::byte> state = spoilt(source.save(), length, held, draw);
      auto decoder = source.fork();
      const std::vector<std::byte> before = decoder.save();
      if (refusal([&] { decoder.restore(state); }) == "accepted") {
        ++taken;
        EXPECT_EQ(decoder.save(), state) << round;
        expect_usable(decoder, fresh, stream);
      } else {
        EXPECT_EQ(decoder.save(), before) << round;
      }
    }
    // Both answers were given.
    EXPECT_GT(taken, rounds / 20) << op.name();
    EXPECT_LT(taken, rounds * 19 / 20) << op.name();
  });
}

TYPED_TEST(LinearDecoder, RefusesTokensThatAreNotItsLast) {
  using T = TypeParam;
  const FmmAttention<EluPlusOne> op{{.near = {.left = 3}, .causal = true}};
  const Stream<T> stream({1, 2, 1, 20, 20, 3, 2}, false);
  auto decoder = op.template decoder<T>(stream.decoder_shape());
  const std::size_t held = decoder.save().size() - 16;  // the first token, and how many there are
  stream.decode(decoder, 20);
  const std::vector<std::byte> state = decoder.save();
  const auto message = [&](std::int64_t first, std::int64_t rows) {
    std::vector<std::byte> other = state;
    set_word(other, held, first);
    set_word(other, held + 8, rows);
    return refusal([&] { decoder.restore(other); });
  };
  const std::string is = std::string(op.name()) + ": state is ";
  const std::string expected = "; expected the bytes that `save` of such a decoder gave";
  const std::string not_at_its_length = is + "with tokens that do not end at its length" + expected;
  EXPECT_EQ(message(-1, 21), not_at_its_length);
  EXPECT_EQ(message(21, -1), not_at_its_length);
  EXPECT_EQ(message(10, 9), not_at_its_length);
  EXPECT_EQ(message(19, 1), is + "without some tokens of its near field" + expected);
  EXPECT_EQ(decoder.save(), state);
}

/// A band without an end is one of every length.
TYPED_TEST(LinearDecoder, SavesANearFieldWithoutAnEnd) {
  using T = TypeParam;
  const FmmAttention<EluPlusOne> op{{.near = {.left = fovea::Window::kUnbounded}, .causal = true}};
  const Stream<T> stream({1, 2, 1, 90, 90, 3, 2}, false);
  auto first = op.template decoder<T>(stream.decoder_shape());
  stream.decode(first, 40);
  auto second = op.template decoder<T>(stream.decoder_shape());
  second.restore(first.save());
  stream.decode(second, 90);
  EXPECT_TRUE(stream.has_rows(stream.forward(op), 0, 90));
}

TYPED_TEST(LinearDecoder, ForksGoTheirOwnWays) {
  for_each_operator([](const auto& op, bool has_beta) {
    const Stream<TypeParam> stream(kShape, has_beta);
    const Stream<TypeParam> wrong(kShape, has_beta,
                                  {gaussian(1), constant(NAN), constant(INFINITY)});
    const std::vector<TypeParam> expected = stream.forward(op);
    auto decoder = op.template decoder<TypeParam>(stream.decoder_shape());
    stream.decode(decoder, 75, 8);
    auto fork = decoder.fork();
    wrong.decode(decoder, 120, 1);
    stream.decode(fork, 200, 1);
    EXPECT_TRUE(stream.has_rows(expected, 0, 200)) << op.name();
    EXPECT_EQ(decoder.length(), 120);
    decoder.clear();
    stream.out.fill(constant(0));
    stream.decode(decoder, 200, 11);
    EXPECT_TRUE(stream.has_rows(expected, 0, 200)) << op.name();
  });
}

/// Of the chunk that is open, tokens can be taken back; nothing of them is left.
TYPED_TEST(LinearDecoder, RollsBackWithinTheChunk) {
  for_each_operator([](const auto& op, bool has_beta) {
    at_each_level([&] {
      const Stream<TypeParam> stream(kShape, has_beta);
      const Stream<TypeParam> wrong(kShape, has_beta,
                                    {gaussian(1), constant(NAN), constant(INFINITY)});
      const std::vector<TypeParam> expected = stream.forward(op);
      for (const Index keep : {97, 100, 127}) {
        auto decoder = op.template decoder<TypeParam>(stream.decoder_shape());
        stream.decode(decoder, keep, 5);
        wrong.decode(decoder, 128, 2);
        decoder.rollback(keep);
        EXPECT_EQ(decoder.length(), keep);
        stream.decode(decoder, 200, 1);
        EXPECT_TRUE(stream.has_rows(expected, 0, 200)) << op.name() << " from " << keep;
        const auto message = [&](Index length) {
          return refusal([&] { decoder.rollback(length); });
        };
        const auto refused = [&](Index length) {
          return std::string(op.name()) + ": rollback is " + std::to_string(length) +
                 "; expected 193 to 200, or 0: earlier tokens are sums by now (keep a fork or a "
                 "save)";
        };
        for (const Index length : {keep, Index{-1}, Index{201}}) {
          EXPECT_EQ(message(length), refused(length));
        }
        decoder.rollback(0);
        EXPECT_EQ(decoder.length(), 0);
      }
    });
  });
}

TYPED_TEST(LinearDecoder, TheSameBitsOnThreads) {
  fovea::ThreadPool pool(3);
  AnyExecutor threads = AnyExecutor::of(pool);
  for_each_operator([&](const auto& op, bool has_beta) {
    const AttentionShape shape{3, 8, 4, 150, 150, 32, 64};
    const Stream<TypeParam> stream(shape, has_beta);
    auto decoder = op.template decoder<TypeParam>(stream.decoder_shape());
    for (const Index count : {100, 1, 49}) {
      const Index first = decoder.length();
      decoder.step(stream.tokens(first, count), cut(stream.out.view(), 2, first, count), threads);
    }
    EXPECT_TRUE(stream.has_rows(stream.forward(op), 0, 150)) << op.name();
  });
}

TYPED_TEST(LinearDecoder, TakesConstantMemory) {
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

/// How many tokens the longest sequence has: 65,536, or what FOVEA_DECODED_TOKENS says.
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

  void add(const Problem<T>& p, const Tensor<T>& beta, Index n) {
    const OracleShares<T> k(elu_plus_one<T>(), p.k.view(), 0, 0, n);
    for (std::size_t c = 0; c < value_width_; ++c) {
      W read = 0;
      for (std::size_t d = 0; d < width_; ++d) read += k.share[d] * state_[d * value_width_ + c];
      const W v = p.v(0, 0, n, static_cast<Index>(c));
      error_size_[c] = std::max(error_size_[c], std::abs(v) + std::abs(read));
      for (std::size_t d = 0; d < width_; ++d) {
        W& x = state_[d * value_width_ + c];
        x += W{beta(0, 0, n, 0)} * k.share[d] * (v - read);
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

/// Decodes all tokens one by one, and compares the sampled rows with what read(head, row, column,
/// value, gauge) says after add(row). \param data names a row in the table of worst errors
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

TYPED_TEST(LinearDecoder, LongSequencesKeepTheirDigits) {
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
          [&](Index n) { delta.add(stream.problem, stream.beta, n); },
          [&](Index h, Index n, Index c, Wide<T>& value, Wide<T>& gauge) {
            delta.read(stream.problem, h, n, c, value, gauge);
          });
    });
  }
}

/// The forward pass of the same length has the bits of the decoder.
TYPED_TEST(LinearDecoder, LongSequencesAreTheForwardPass) {
  for_each_operator([](const auto& op, bool has_beta) {
    const Stream<TypeParam> stream({1, 1, 1, 9000, 9000, 8, 5}, has_beta);
    auto decoder = op.template decoder<TypeParam>(stream.decoder_shape());
    stream.decode(decoder, 9000, 1);
    EXPECT_TRUE(stream.has_rows(stream.forward(op), 0, 9000)) << op.name();
  });
}

}  // namespace
}  // namespace fovea_test
