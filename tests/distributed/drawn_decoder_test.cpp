// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Decoders whose keys are spread over ranks, with drawn operators, sizes and data: tokens are
/// appended, decoded, forgotten and refused in any order, and each row has the bits of one process.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "attention/decoding.hpp"
#include "distributed/drawn_ranks.hpp"
#include "distributed/score_modifier.hpp"
#include "fovea/distributed/softmax_decoder.hpp"

namespace fovea_test::distributed_drawn_decoder {

using fovea::distributed::SoftmaxDecoder;

template <class T, class Op>
class ShardedDecoderTrial {
 public:
  /// \pre the operator has a decoder over ranks
  ShardedDecoderTrial(Bytes& bytes, const Op& op, const AttentionShape& shape, std::uint64_t seed,
                      IsaLevel level)
      : bytes_(bytes),
        of_rank_(bytes_of_rank(seed)),
        own_(of_rank_),
        level_(level),
        op_(op),
        whole_(shape, drawn_beside(bytes), {}, seed),
        own_tokens_(shape, {}, drawn_layout(own_), seed),
        decoder_(op, own_tokens_.decoder_shape(), all_ranks()) {}

  void run() {
    for (int turn = 0; turn < 10 && !bytes_.is_empty(); ++turn) {
      // The first turns bring a good part of the tokens.
      change(turn == 0 ? 0 : bytes_(0, 9));
      SCOPED_TRACE(said_);
      EXPECT_EQ(decoder_.length(), length_);
    }
  }

 private:
  using Number = fovea::Compute<T>;

  static Beside drawn_beside(Bytes& bytes) {
    return {.alibi = bytes.once_in(4), .sink = bytes.once_in(4)};
  }
  Index rest() const { return whole_.shape.keys - length_; }

  void change(Index what) {
    switch (what) {
      case 0:
        return append(bytes_.once_in(4) ? rest() : bytes_(0, rest()));
      case 1:
        return append_own(bytes_(0, rest()));
      case 2:
        return rollback();
      case 3:
        if (bytes_.once_in(3)) return forget();
        return reserve();
      case 4:
        return refuse();
      default:
        return step();
    }
  }

  void say(const std::string& what, Index number) {
    said_.append(what).append(" ").append(std::to_string(number)).append("; ");
  }

  void append(Index count) {
    say("append", count);
    decoder_.append(own_tokens_.keys(length_, count), own_tokens_.values(length_, count));
    length_ += count;
  }

  void append_own(Index count) {
    say("append own", count);
    const Sharding before(all_ranks(), decoder_.layout(length_));
    const Sharding rows(all_ranks(), decoder_.layout(length_ + count));
    const Index had = before.own_count();
    const Tensor<T> k = own_part(whole_.k, rows, drawn_input_layout(own_));
    const Tensor<T> v = own_part(whole_.v, rows, drawn_input_layout(own_));
    const Index now = rows.own_count() - had;
    decoder_.append_own(
        {cut(View<const T>(k.view()), 2, had, now), cut(View<const T>(v.view()), 2, had, now)},
        count);
    length_ += count;
  }

  void rollback() {
    const Index most = bytes_.once_in(2) ? std::min<Index>(length_, 5) : length_;
    const Index to = length_ - bytes_(0, most);
    say("rollback to", to);
    decoder_.rollback(to);
    length_ = to;
  }

  void forget() {
    said_ += "clear; ";
    decoder_.clear();
    length_ = 0;
  }

  void reserve() {
    const Index count = bytes_(0, 5000);
    say("reserve", count);
    decoder_.reserve(count);
  }

  /// One rank has invalid or different arguments: all ranks report the same error, and nothing has
  /// changed.
  void refuse() {
    said_ += "refuse; ";
    SCOPED_TRACE(said_);
    const bool is_odd = all_ranks().rank() == bytes_(0, all_ranks().size() - 1);
    const bool is_alone = all_ranks().size() == 1;
    const AttentionShape& s = whole_.shape;
    const Index wrong = is_odd ? 1 : 0;
    const Tensor<T> k({s.batch, s.key_heads, 2, s.width + wrong});
    const Tensor<T> v({s.batch, s.key_heads, 2, s.value_width});
    const Tensor<T> q({s.batch, s.query_heads, 1, s.width + wrong});
    const Tensor<T> out({s.batch, s.query_heads, 1, s.value_width});
    std::string said;
    switch (bytes_(0, 4)) {
      case 0:
        said = said_together([&] { decoder_.append(k.view(), v.view()); });
        break;
      case 1:
        said = said_together([&] { decoder_.rollback(is_odd ? length_ + 1 : length_); });
        break;
      case 2:
        said = said_together([&] { decoder_.reserve(is_odd ? -1 : 3); });
        break;
      case 3:
        if (is_alone) return;
        said = said_together([&] {
          const Index count = is_odd ? 1 : 2;
          decoder_.append(View<const T>(k.view().data(), {s.batch, s.key_heads, count, s.width}),
                          cut_logits(View<const T>(v.view()), 2, 0, count));
        });
        EXPECT_NE(said.find(" calls "), std::string::npos) << said;
        break;
      default:
        said = said_together([&] {
          fovea::SoftmaxInputs<T> in;
          in.q = q.view();
          in.k = View<const T>(k.view().data(), {s.batch, s.key_heads, 2, s.width});
          in.v = v.view();
          decoder_.step(in, out.view());
        });
    }
    EXPECT_NE(said, "accepted");
  }
  /// Some rows: those of new tokens, the last ones again, or both.
  void step() {
    Index most = bytes_.once_in(3) ? 70 : 3;
    // A prompt, of as many rows as a bias of all pairs leaves memory for.
    if (bytes_.once_in(12)) most = std::min<Index>(2500, 6'000'000 / (whole_.shape.keys + 1));
    const Index tokens = bytes_.once_in(3) ? 0 : bytes_(0, std::min(rest(), most));
    const Index after = length_ + tokens;
    const Index rows = bytes_.once_in(2) ? tokens : bytes_(0, std::min(after, most));
    say("new tokens", tokens);
    say("rows", rows);
    SCOPED_TRACE(said_);
    if (after == 0) return;  // a step needs a token
    const Index row = after - rows;
    const AttentionShape& s = whole_.shape;
    AllInputs<T> in = whole_.queries(row, rows, after);
    const Tensor<Number> bias(
        {bytes_.once_in(2) ? 1 : s.batch, s.query_heads, bytes_.once_in(2) ? 1 : rows, after});
    const Tensor<bool> mask({s.batch, 1, rows, bytes_.once_in(2) ? 1 : after});
    bias.fill(bias_fill(static_cast<std::uint64_t>(after), {.bias = "qk"}));
    mask.fill(mask_fill(static_cast<std::uint64_t>(rows)));
    const bool has_bias = bytes_.once_in(4);
    const bool has_mask = bytes_.once_in(4);
    const Tensor<Number> own_bias = bias.in(drawn_input_layout(own_));
    const Tensor<bool> own_mask = mask.in(drawn_input_layout(own_));
    if (has_bias) in.bias = bias.view();
    if (has_mask) in.mask = mask.view();
    AllInputs<T> own_in = in;
    own_in.q = own_tokens_.queries(row, rows, after).q;
    if (has_bias) own_in.bias = own_bias.view();
    if (has_mask) own_in.mask = own_mask.view();
    if (tokens > 0) {
      own_in.k = own_tokens_.keys(length_, tokens);
      own_in.v = own_tokens_.values(length_, tokens);
    }
    const Tensor<T> out({s.batch, s.query_heads, rows, s.value_width});
    const Tensor<Number> lse({s.batch, s.query_heads, rows, 1});
    {
      const AtLevel at(level_);
      auto alone = op_.template decoder<T>(whole_.decoder_shape());
      alone.append(whole_.keys(0, after), whole_.values(0, after));
      alone.step(in, out.view(), AllSaved<T>{lse.view()});
    }
    const AtLevel at(drawn_level_like(level_, own_));
    const Tensor<T> own_out(out.shape(), drawn_layout(own_));
    const Tensor<Number> own_lse(lse.shape(), drawn_layout(own_));
    AnyExecutor executor = drawn_executor_of_rank(own_);
    decoder_.step(own_in, own_out.view(), fovea::SoftmaxSaved<T>{own_lse.view()}, executor);
    length_ = after;
    EXPECT_TRUE(same_bits(out.values(), own_out.values(), out.shape()));
    EXPECT_TRUE(same_bits(lse.values(), own_lse.values(), lse.shape()));
    EXPECT_EQ(own_out.changed_gaps() + own_lse.changed_gaps(), 0);
  }

  Bytes& bytes_;
  std::vector<std::uint8_t> of_rank_;
  Bytes own_;
  IsaLevel level_;
  Op op_;
  TokenTensors<T> whole_;
  TokenTensors<T> own_tokens_;  // in memory as this rank chooses
  SoftmaxDecoder<Op, T> decoder_;
  Index length_ = 0;
  std::string said_;
};

/// One or two segments, or enough for all ranks to have some; or a few tokens.
AttentionShape drawn_tokens(Bytes& bytes) {
  AttentionShape s;
  s.width = bytes.once_in(6) ? 0 : bytes(1, 20);
  s.value_width = bytes.once_in(6) ? 0 : bytes(1, 20);
  s.key_heads = bytes(1, 2);
  s.query_heads = s.key_heads * (bytes.once_in(12) ? bytes(17, 40) : bytes(1, 3));
  s.batch = bytes.once_in(30) ? 0 : bytes(1, 2);
  switch (bytes(0, 3)) {
    case 0:
      s.keys = bytes(1, 70);
      break;
    case 1:
      s.keys = fovea::kKeySegment * bytes(1, 8) + bytes(-3, 40);
      break;
    default:
      s.keys = bytes(900, 2500);
  }
  s.queries = s.keys;
  return s;
}

template <class T, class Op>
void try_decoder(Bytes& bytes, const Op& op, const std::string& made = "") {
  const AttentionShape s = drawn_tokens(bytes);
  const auto seed = static_cast<std::uint64_t>(bytes(1, 65535));
  SCOPED_TRACE(std::string(Op::name()) + made + " " + scalar_name<T>() + ": B " +
               std::to_string(s.batch) + ", Hq " + std::to_string(s.query_heads) + ", Hk " +
               std::to_string(s.key_heads) + ", N " + std::to_string(s.keys) + ", D " +
               std::to_string(s.width) + ", Dv " + std::to_string(s.value_width) + ", seed " +
               std::to_string(seed));
  std::optional<ShardedDecoderTrial<T, Op>> trial;
  // Heads that look back to a bound need no ranks, and positions from the left no decoder.
  const std::string said =
      said_together([&] { trial.emplace(bytes, op, s, seed, drawn_level(bytes)); });
  if (said == "accepted") return trial->run();
  EXPECT_TRUE(said.find("bounded") != std::string::npos ||
              said.find("alignment") != std::string::npos)
      << said;
}

template <class T>
void try_any(Bytes& bytes) {
  switch (bytes(0, 4)) {
    case 0: {
      fovea::FullAttention op = drawn_full(bytes);
      if (bytes.once_in(2)) op.options.window = {};
      if (bytes.once_in(3)) {
        return try_decoder<T>(bytes, fovea::ModifiedAttention(op, NearerIsMore{}));
      }
      return try_decoder<T>(bytes, op);
    }
    case 1:
      return try_decoder<T>(bytes, drawn_strided(bytes));
    case 2:
      return try_decoder<T>(bytes, drawn_big_bird(bytes));
    default: {
      const DrawnSparse drawn = drawn_sparse(bytes);
      return try_decoder<T>(bytes, drawn.op, drawn.made);
    }
  }
}

TEST(DistributedDrawnDecoder, EqualsOneProcess) {
  each_drawn_over_ranks(60, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_any_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_decoder
