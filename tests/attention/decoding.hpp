// SPDX-License-Identifier: MIT
/// \file
/// Tokens for a decoder, and the results of `forward` for them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "fovea/core/eigen.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/refusal.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using bench::AllInputs;
using bench::AllSaved;
using fovea::AttentionShape;
using fovea::DecoderShape;
using fovea::FullAttention;
using fovea::LocalAttention;

/// A call's inputs besides q, k and v.
struct Beside {
  bool bias = false;
  bool mask = false;
  bool alibi = false;
  bool sink = false;
};

/// The tokens of a sequence, their queries, and all results of `forward` or of a decoder.
template <class T>
struct TokenTensors {
  using Number = fovea::Compute<T>;

  AttentionShape shape;
  Tensor<T> q, k, v, out;
  Tensor<Number> lse;
  Tensor<Number> bias{};
  Tensor<bool> mask{};
  std::vector<Number> slopes{};
  std::vector<Number> sink{};

  /// \param s queries and keys are the same number
  explicit TokenTensors(const AttentionShape& s, const Beside& beside = {},
                        const Layout& layout = {}, std::uint64_t seed = 1)
      : shape(s),
        q({s.batch, s.query_heads, s.keys, s.width}, layout),
        k({s.batch, s.key_heads, s.keys, s.width}, layout),
        v({s.batch, s.key_heads, s.keys, s.value_width}, layout),
        out({s.batch, s.query_heads, s.keys, s.value_width}, layout),
        lse({s.batch, s.query_heads, s.keys, 1}, layout) {
    q.fill(gaussian(seed));
    k.fill(gaussian(seed + 1));
    v.fill(gaussian(seed + 2));
    if (beside.bias) {
      bias = Tensor<Number>({1, s.query_heads, s.keys, s.keys});
      bias.fill([&](Index b, Index h, Index i, Index j) {
        const std::uint64_t bits = hash(seed + 3, b, h, i, j);
        return bits % 7 == 0 ? -std::numeric_limits<double>::infinity() : uniform(bits);
      });
    }
    if (beside.mask) {
      mask = Tensor<bool>({s.batch, 1, s.keys, s.keys});
      mask.fill([&](Index b, Index h, Index i, Index j) {
        return i != 5 && hash(seed + 4, b, h, i, j) % 3 != 0;
      });
    }
    for (Index h = 0; h < s.query_heads; ++h) {
      if (beside.alibi) slopes.push_back(static_cast<Number>(0.1 * static_cast<double>(h)));
      if (beside.sink) sink.push_back(static_cast<Number>(0.5 - 0.2 * static_cast<double>(h)));
    }
  }

  DecoderShape decoder_shape() const {
    return {.batch = shape.batch,
            .query_heads = shape.query_heads,
            .key_heads = shape.key_heads,
            .width = shape.width,
            .value_width = shape.value_width};
  }

  View<const T> keys(Index first, Index count) const {
    return cut(View<const T>(k.view()), 2, first, count);
  }
  View<const T> values(Index first, Index count) const {
    return cut(View<const T>(v.view()), 2, first, count);
  }

  /// Query rows [row, row + rows) when there are `length` tokens; without k and v.
  AllInputs<T> queries(Index row, Index rows, Index length) const {
    AllInputs<T> in{cut(View<const T>(q.view()), 2, row, rows)};
    if (size_of(bias.shape()) > 0)
      in.bias = cut_logits(cut_logits(bias.view(), 2, row, rows), 3, 0, length);
    if (size_of(mask.shape()) > 0)
      in.mask = cut_logits(cut_logits(mask.view(), 2, row, rows), 3, 0, length);
    in.alibi_slopes = slopes;
    in.sink = sink;
    return in;
  }
  View<T> out_rows(Index row, Index rows) const { return cut_logits(out.view(), 2, row, rows); }
  AllSaved<T> saved_rows(Index row, Index rows) const {
    return {cut_logits(lse.view(), 2, row, rows)};
  }

  /// Rows [row, row + rows) by `forward`, with tokens [0, row + rows).
  template <class Op>
  void forward(const Op& op, Index row, Index rows) const {
    AllInputs<T> in = queries(row, rows, row + rows);
    in.k = keys(0, row + rows);
    in.v = values(0, row + rows);
    op.forward(in, out_rows(row, rows), saved_rows(row, rows));
  }

  /// The same by a decoder that has the tokens [0, row).
  template <class D, class E = fovea::Serial>
  void step(D& decoder, Index row, Index rows, E&& executor = {}) const {
    AllInputs<T> in = queries(row, rows, row + rows);
    in.k = keys(row, rows);
    in.v = values(row, rows);
    decoder.step(in, out_rows(row, rows), saved_rows(row, rows), executor);
  }

  /// All tokens in pieces of these lengths, over and over.
  template <class D, class E = fovea::Serial>
  void decode(D& decoder, const std::vector<Index>& lengths, E&& executor = {}) const {
    for (std::size_t n = 0; decoder.length() < shape.keys; ++n) {
      const Index row = decoder.length();
      step(decoder, row, std::min(lengths[n % lengths.size()], shape.keys - row), executor);
    }
  }
};

template <class T>
testing::AssertionResult same_results(const TokenTensors<T>& a, const TokenTensors<T>& b) {
  if (auto out = same_bits(a.out.values(), b.out.values(), a.out.shape()); !out) return out;
  if (auto lse = same_bits(a.lse.values(), b.lse.values(), a.lse.shape()); !lse) {
    return lse << " (lse)";
  }
  if (a.out.changed_gaps() + b.out.changed_gaps() > 0) {
    return testing::AssertionFailure() << "written between the elements";
  }
  return testing::AssertionSuccess();
}

/// A decoder of FullAttention with 10 tokens, and the step of the next two, of which a test spoils
/// one thing.
template <class D>
class SpoiltStep : public testing::Test {
 protected:
  /// \param decoder of FullAttention for kShape, without tokens
  explicit SpoiltStep(D decoder) : decoder_(std::move(decoder)) {
    tokens_.step(decoder_, 0, 10);
    make_right();
  }

  void make_right() {
    in_ = tokens_.queries(10, 2, 12);
    in_.k = tokens_.keys(10, 2);
    in_.v = tokens_.values(10, 2);
    out_ = tokens_.out_rows(10, 2);
    saved_ = tokens_.saved_rows(10, 2);
  }

  /// The step as it was changed is refused, and as it should be gives its bits.
  void expect(const std::string& message) {
    const std::vector<float> before = tokens_.out.values();
    EXPECT_EQ(refusal([&] { decoder_.step(in_, out_, saved_); }), message);
    EXPECT_TRUE(same_bits(before, tokens_.out.values()));
    expect_as_before();
  }
  void expect_as_before() {
    EXPECT_EQ(decoder_.length(), 10);
    make_right();
    decoder_.step(in_, out_, saved_);
    expected_.forward(FullAttention{}, 0, 10);
    expected_.forward(FullAttention{}, 10, 2);
    EXPECT_TRUE(same_results(tokens_, expected_));
    decoder_.rollback(10);
  }

  static constexpr AttentionShape kShape = {2, 4, 2, 40, 40, 5, 3};
  TokenTensors<float> tokens_{kShape};
  TokenTensors<float> expected_{kShape};
  D decoder_;
  AllInputs<float> in_{View<const float>{}};
  View<float> out_;
  AllSaved<float> saved_;
};

/// A decoder against `forward` of each piece over all tokens so far, by bits, at every level.
template <class T, class Op>
void expect_forward(const Op& op, const AttentionShape& shape, const std::vector<Index>& lengths,
                    const Beside& beside = {}) {
  at_each_level([&] {
    const TokenTensors<T> decoded(shape, beside);
    const TokenTensors<T> expected(shape, beside);
    auto decoder = op.template decoder<T>(decoded.decoder_shape());
    decoded.decode(decoder, lengths);
    std::size_t n = 0;
    for (Index row = 0; row < shape.keys;) {
      const Index rows = std::min(lengths[n++ % lengths.size()], shape.keys - row);
      expected.forward(op, row, rows);
      row += rows;
    }
    EXPECT_TRUE(same_results(decoded, expected))
        << "Hq " << shape.query_heads << ", Hk " << shape.key_heads << ", N " << shape.keys
        << ", D " << shape.width << ", Dv " << shape.value_width;
  });
}

/// Tokens appended alone, then queries of the last positions, again and again.
template <class T, class Op>
void expect_append_then_step(const Op& op) {
  const AttentionShape shape{1, 2, 1, 500, 500, 6, 7};
  const TokenTensors<T> decoded(shape);
  const TokenTensors<T> expected(shape);
  auto decoder = op.template decoder<T>(decoded.decoder_shape());
  for (const Index count : {400, 0, 90, 10}) {
    decoder.append(decoded.keys(decoder.length(), count), decoded.values(decoder.length(), count));
  }
  EXPECT_EQ(decoder.length(), 500);
  for (const Index rows : {1, 5, 40}) {
    const Index row = 500 - rows;
    decoder.step(decoded.queries(row, rows, 500), decoded.out_rows(row, rows),
                 decoded.saved_rows(row, rows));
    expected.forward(op, row, rows);
    EXPECT_TRUE(same_results(decoded, expected));
  }
}

/// Appends that many tokens of NaN and rolls them back: they have no effect on the decoder or a
/// fork, and the fork has none on the decoder. Cleared it keeps its memory, and begins anew.
template <class T, class Op>
void expect_rolled_back(const Op& op, Index rolled_back) {
  const AttentionShape shape{1, 4, 2, 400, 400, 8, 8};
  const TokenTensors<T> decoded(shape);
  const TokenTensors<T> expected(shape);
  TokenTensors<T> wrong(shape);
  wrong.k.fill(constant(NAN));
  wrong.v.fill(constant(NAN));
  DecoderShape sizes = decoded.decoder_shape();
  sizes.rollback_tokens = 64;
  auto decoder = op.template decoder<T>(sizes);
  decoded.step(decoder, 0, 300);
  wrong.step(decoder, 300, rolled_back);
  decoder.rollback(300);
  EXPECT_EQ(decoder.length(), 300);
  auto fork = decoder.fork();
  wrong.step(decoder, 300, rolled_back);
  decoded.decode(fork, {1, 1, 90, 8});
  auto again = op.template decoder<T>(sizes);
  expected.decode(again, {300, 1, 1, 90, 8});
  EXPECT_TRUE(same_results(decoded, expected));
  EXPECT_EQ(decoder.length(), 300 + rolled_back);
  const Index bytes = decoder.memory_bytes();
  decoder.clear();
  EXPECT_EQ(decoder.length(), 0);
  EXPECT_EQ(decoder.memory_bytes(), bytes);
  decoded.decode(decoder, {300, 1, 1, 90, 8});
  EXPECT_TRUE(same_results(decoded, expected));
}

}  // namespace fovea_test
