// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4 LEVELS)
/// \file
/// Every operator, with all its options: a decoder has the bits of `forward`, however the tokens
/// are divided; and later or hidden tokens have no effect.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/conformance.hpp"
#include "attention/pieces.hpp"
#include "attention/poisons.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_conformance_decoding {

class ConformingDecoders : public Conformance {};

/// out and lse of a sequence that comes in pieces of these lengths, over and over.
template <class T, class Call>
Result<T> in_pieces(const Case<T>& op, const Problem<T>& p, const std::vector<Index>& lengths,
                    Call&& call) {
  const Written<T> to(op, p.out_shape());
  std::size_t n = 0;
  for (Index row = 0; row < p.shape.keys;) {
    const Index rows = std::min(lengths[n++ % lengths.size()], p.shape.keys - row);
    AllSaved<T> saved;
    if (to.has_lse) saved.lse = cut(to.lse.view(), 2, row, rows);
    call(row, rows, cut(to.out.view(), 2, row, rows), saved);
    row += rows;
  }
  return to.result();
}

/// Tokens that are there when a row is decoded.
Index tokens_at(Index row, const std::vector<Index>& lengths) {
  Index end = 0;
  for (std::size_t n = 0; end <= row; ++n) end += lengths[n % lengths.size()];
  return end;
}

/// Whether a row sees a key when it is decoded; patterns may depend on the number of tokens.
template <class T>
bool sees_then(const Case<T>& op, Problem<T>& p, Index h, Index row, Index j, Index tokens) {
  if (j >= tokens) return false;
  const AttentionShape whole = p.shape;
  p.shape.queries = p.shape.keys = tokens;
  const bool seen = sees(op, p, 0, h, row, j);
  p.shape = whole;
  return seen;
}

/// By calls of `forward` for the rows of each piece.
template <class T>
Result<T> called(const Case<T>& op, const Problem<T>& p, const std::vector<Index>& lengths) {
  const AllInputs<T> in = p.inputs();
  return in_pieces(op, p, lengths,
                   [&](Index row, Index rows, const View<T>& out, const AllSaved<T>& saved) {
                     op.forward(rows_with_keys(in, row, rows, 0), out, saved, nullptr);
                   });
}

template <class T>
Result<T> decoded(const Case<T>& op, const Problem<T>& p, const std::vector<Index>& lengths) {
  const AnyDecoder<T> decoder = op.decoder(decoder_shape(p.shape));
  const AllInputs<T> in = p.inputs();
  return in_pieces(op, p, lengths,
                   [&](Index row, Index rows, const View<T>& out, const AllSaved<T>& saved) {
                     decoder.step(rows_with_keys(in, row, rows, row), out, saved);
                   });
}

/// Several heads to a key head, some sizes 0.
std::vector<AttentionShape> decoded_shapes() {
  return {{2, 4, 2, 200, 200, 9, 6}, {1, 8, 1, 140, 140, 32, 32}, {0, 4, 2, 40, 40, 9, 6},
          {2, 0, 2, 40, 40, 9, 6},   {2, 0, 0, 40, 40, 9, 6},     {2, 4, 2, 40, 40, 0, 6},
          {2, 4, 2, 40, 40, 9, 0},   {2, 4, 2, 40, 40, 0, 0},     {0, 0, 2, 40, 40, 0, 0}};
}

TEST_P(ConformingDecoders, DecodingMatchesForwardBitwise) {
  each([]<class T>(const Case<T>& op) {
    if (!op.has_decoder) {
      if (op.decoder) {
        EXPECT_NE(refusal([&] { op.decoder({}); }), "accepted");
      }
      return;
    }
    at_each_level([&] {
      for (const AttentionShape& shape : decoded_shapes()) {
        const Problem<T> problem = make_problem(op, shape);
        for (const std::vector<Index>& lengths :
             {std::vector<Index>{1}, {130, 1, 2, 1, 9}, {1000}}) {
          EXPECT_TRUE(same_bits(called(op, problem, lengths), decoded(op, problem, lengths)))
              << describe(problem);
        }
      }
    });
  });
}

/// The last row again and again, of tokens that came in a step or were appended, with query heads
/// that share a key head and without: its keys are not given then.
TEST_P(ConformingDecoders, StepsMayHaveNoNewTokens) {
  each([]<class T>(const Case<T>& op) {
    if (!op.has_decoder) return;
    for (const Index key_heads : {1, 2, 4}) {
      const Index n = 70;
      const Problem<T> problem = make_problem(op, AttentionShape{2, 4, key_heads, n, n, 9, 6});
      const AllInputs<T> in = problem.inputs();
      const Written<T> to(op, {2, 4, 1, 6});
      op.forward(rows_with_keys(in, n - 1, 1, 0), to.out.view(), to.saved(), nullptr);
      const Result<T> expected = to.result();
      AllInputs<T> query = rows_with_keys(in, n - 1, 1, 0);
      query.k = query.v = {};
      query.beta = {};
      const auto expect_row = [&](const AnyDecoder<T>& decoder) {
        to.fill(7);
        decoder.step(query, to.out.view(), to.saved());
        EXPECT_TRUE(same_bits(expected, to.result())) << key_heads;
      };
      const AnyDecoder<T> decoder = op.decoder(decoder_shape(problem.shape));
      decoder.append(rows_with_keys(in, 0, n - 5, 0));
      decoder.append(rows_with_keys(in, n - 5, 5, n - 5));
      expect_row(decoder);
      expect_row(decoder);
      const AnyDecoder<T> stepped = op.decoder(decoder_shape(problem.shape));
      const Written<T> all(op, problem.out_shape());
      stepped.step(rows_with_keys(in, 0, n, 0), all.out.view(), all.saved());
      expect_row(stepped);
    }
  });
}

/// The same with one NaN for all: which sign a NaN has is not promised.
template <class T>
Result<T> with_one_nan(Result<T> result) {
  for (std::vector<T>* const numbers : {&result.out, &result.lse}) {
    for (T& x : *numbers) {
      if (std::isnan(x)) x = std::numeric_limits<T>::quiet_NaN();
    }
  }
  return result;
}

/// NaN and infinity reach the rows that they reach in `forward`, and no bit of those that do not
/// see them.
TEST_P(ConformingDecoders, InvisibleTokensDoNotChangeBitsOfDecodedRows) {
  each([]<class T>(const Case<T>& op) {
    if (!op.has_decoder) return;
    at_each_level([&] {
      Problem<T> problem = make_problem(op, AttentionShape{1, 2, 1, 90, 90, 5, 7});
      const std::vector<Index> lengths = {70, 1, 4, 15};
      const Result<T> clean = decoded(op, problem, lengths);
      for (const Index j : {3, 69, 73, 89}) {
        const Restored k(problem.k);
        const Restored v(problem.v);
        for (Index c = 0; c < 7; ++c) {
          problem.v(0, 0, j, c) = std::numeric_limits<T>::quiet_NaN();
          if (c < 5) problem.k(0, 0, j, c) = std::numeric_limits<T>::infinity();
        }
        const Result<T> poisoned = decoded(op, problem, lengths);
        EXPECT_TRUE(same_bits(with_one_nan(called(op, problem, lengths)), with_one_nan(poisoned)))
            << j;
        for (Index h = 0; h < 2; ++h) {
          for (Index row = 0; row < 90; ++row) {
            if (sees_then(op, problem, h, row, j, tokens_at(row, lengths))) continue;
            EXPECT_TRUE(same_row(clean, {0, h, row}, poisoned, {0, h, row})) << j << " " << row;
          }
        }
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(, ConformingDecoders, conforming_subjects(), test_name);

}  // namespace fovea_test::attention_conformance_decoding
