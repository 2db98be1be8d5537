// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4)
/// \file
/// Saved states of the decoders of linear attention, FMM attention and the delta rule: a restored
/// decoder continues where it was, and states of other decoders and arbitrary bytes are refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "attention/linear_decoder_stream.hpp"
#include "fovea/attention/call/decoder_check.hpp"
#include "fovea/attention/linear/decoder_state.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_linear_decoder_state {

template <class T>
class LinearDecoderState : public testing::Test {};
TYPED_TEST_SUITE(LinearDecoderState, Scalars);

std::int64_t word(const std::vector<std::byte>& bytes, std::size_t at) {
  std::int64_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}
void set_word(std::vector<std::byte>& bytes, std::size_t at, std::int64_t number) {
  std::memcpy(bytes.data() + at, &number, sizeof(number));
}

/// A decoder's message for a state that it refuses.
std::string refused_state(const char* op, const char* what) {
  return std::string(op) + ": state " + what + "; expected the output of `save` of such a decoder";
}

TYPED_TEST(LinearDecoderState, RefusesStatesOfOtherDecoders) {
  using T = TypeParam;
  for_each_operator([](const auto& op, bool has_beta) {
    const Stream<T> stream(kShape, has_beta);
    auto decoder = op.template decoder<T>(stream.decoder_shape());
    stream.decode(decoder, 70, 20);
    std::vector<std::byte> state = decoder.save();
    DecoderShape wider = stream.decoder_shape();
    ++wider.width;
    auto other = op.template decoder<T>(wider);
    const auto refused = [&](const char* what) { return refused_state(op.name(), what); };
    const char* const of_another = "belongs to another operator, shape, scalar type or version";
    EXPECT_EQ(refusal([&] { other.restore(state); }), refused(of_another));
    const LinearAttention<fovea::EluMinusPlusOne, EluPlusOne, EluPlusOne> three{{.causal = true}};
    auto of_three = three.template decoder<T>(stream.decoder_shape());
    EXPECT_EQ(refusal([&] { of_three.restore(state); }), refused_state(three.name(), of_another));
    const auto message = [&](std::span<const std::byte> bytes) {
      return refusal([&] { decoder.restore(bytes); });
    };
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, state.size() - 1}) {
      EXPECT_EQ(message(std::span(state).first(size)), refused("is truncated")) << size;
    }
    constexpr std::size_t length = sizeof(fovea::LinearStateHeader{}.identity());
    for (const std::int64_t tokens : {Index{-1}, fovea::kMostDecoderTokens + 1}) {
      set_word(state, length, tokens);
      EXPECT_EQ(message(state), refused("has an impossible length")) << tokens;
    }
    set_word(state, length, 70);
    state.push_back({});
    EXPECT_EQ(message(state), refused("has bytes after its end"));
    // As it was.
    EXPECT_EQ(decoder.length(), 70);
    stream.decode(decoder, 200, 9);
    EXPECT_TRUE(stream.has_rows(stream.forward(op), 0, 200)) << op.name();
  });
}

/// A saved state, spoilt in one of the ways that files are, or that someone may choose.
/// \param length offset of the number of tokens; after the states come the position of the first
/// stored token and their number
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
    case 3:  // everything after the header
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
    default: {  // tokens that end at the stated position
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

/// What must work with any accepted state.
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

/// Bytes may come from files: `restore` accepts or refuses any bytes, and the decoder remains
/// valid. With sanitizers the test checks more.
TYPED_TEST(LinearDecoderState, RestoresOrRefusesAnyBytes) {
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

TYPED_TEST(LinearDecoderState, RefusesTokensThatAreNotItsLast) {
  using T = TypeParam;
  const FmmAttention<EluPlusOne> op{{.band = {.left = 3}, .causal = true}};
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
  const std::string not_at_its_length =
      refused_state(op.name(), "has a near field that does not end at its length");
  EXPECT_EQ(message(-1, 21), not_at_its_length);
  EXPECT_EQ(message(21, -1), not_at_its_length);
  EXPECT_EQ(message(10, 9), not_at_its_length);
  EXPECT_EQ(message(19, 1), refused_state(op.name(), "lacks tokens of its near field"));
  EXPECT_EQ(decoder.save(), state);
}

/// A band without an end is one of every length.
TYPED_TEST(LinearDecoderState, SavesAnUnboundedNearField) {
  using T = TypeParam;
  const FmmAttention<EluPlusOne> op{{.band = {.left = fovea::Window::kUnbounded}, .causal = true}};
  const Stream<T> stream({1, 2, 1, 90, 90, 3, 2}, false);
  auto first = op.template decoder<T>(stream.decoder_shape());
  stream.decode(first, 40);
  auto second = op.template decoder<T>(stream.decoder_shape());
  second.restore(first.save());
  stream.decode(second, 90);
  EXPECT_TRUE(stream.has_rows(stream.forward(op), 0, 90));
}

}  // namespace fovea_test::attention_linear_decoder_state
