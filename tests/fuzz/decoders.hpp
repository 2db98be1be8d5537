// SPDX-License-Identifier: MIT
/// \file
/// One trial of any operator's decoder: tokens are appended, decoded, forgotten, forked, saved and
/// restored in any order, and each row that is decoded has the bits of `forward`. What is wrong is
/// said by GoogleTest's expectations.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "attention/conformance.hpp"
#include "attention/pieces.hpp"
#include "fuzz/drawn_problem.hpp"
#include "support/scalars.hpp"

namespace fovea_test {

/// Decoders of one problem, each with some of its first tokens.
template <class T>
class DecoderTrial {
 public:
  DecoderTrial(Bytes& bytes, const Case<T>& op)
      : bytes_(bytes), op_(op), problem_(make_problem(op, drawn_tokens(bytes), 1)) {
    shape_ = decoder_shape(problem_.shape);
    shape_.rollback_tokens = bytes.once_in(2) ? bytes(0, 40) : 0;
    if (!makes(shape_)) shape_.rollback_tokens = 0;  // where the operator cannot promise any
    decoders_.push_back(op.decoder(shape_));
  }

  void run() {
    SCOPED_TRACE(op_.name + " " + scalar_name<T>() + ": " + describe(problem_));
    for (int turn = 0; turn < 24 && !bytes_.is_empty(); ++turn) {
      at_ = as_size(bytes_(0, std::ssize(decoders_) - 1));
      said_ += change();
      SCOPED_TRACE(said_);
      ASSERT_EQ(decoder().length(), lengths_[at_]);
    }
  }

 private:
  static AttentionShape drawn_tokens(Bytes& bytes) {
    AttentionShape s;
    s.keys = s.queries = bytes(1, 3) * bytes(1, 80);
    s.width = bytes(0, 20);
    s.value_width = bytes(0, 20);
    s.key_heads = bytes(1, 2);
    s.query_heads = s.key_heads * bytes(1, 3);
    s.batch = bytes(1, 2);
    return s;
  }

  bool makes(const fovea::DecoderShape& shape) const {
    try {
      op_.decoder(shape);
    } catch (const std::invalid_argument&) {
      return false;
    }
    return true;
  }

  const AnyDecoder<T>& decoder() const { return decoders_[at_]; }
  Index rest() const { return problem_.shape.keys - lengths_[at_]; }

  /// Changes the chosen decoder, and returns how.
  std::string change() {
    const Index length = lengths_[at_];
    switch (bytes_(0, 8)) {
      case 0:
        return append(bytes_(0, std::min<Index>(rest(), 70)));
      case 1:
        return look_again();
      case 2:
        return fork();
      case 3:
        return rollback(length - bytes_(0, std::min<Index>(length, 50)));
      case 4:
        return save_and_restore();
      case 5:
        if (!bytes_.once_in(4)) break;
        decoder().clear();
        lengths_[at_] = 0;
        return "clear; ";
      case 6:
        return refuse();
      default:
        break;
    }
    return step(bytes_(0, std::min<Index>(rest(), bytes_.once_in(3) ? 70 : 3)));
  }

  std::string append(Index tokens) {
    decoder().append(rows_with_keys(problem_.inputs(), lengths_[at_], tokens, lengths_[at_]));
    lengths_[at_] += tokens;
    return "append " + std::to_string(tokens) + "; ";
  }

  /// Decodes rows by call(out, saved), and compares them with those of `forward`.
  template <class Call>
  void expect_rows(Index row, Index rows, Call&& call) {
    const AttentionShape& s = problem_.shape;
    const Shape shape = {s.batch, s.query_heads, rows, s.value_width};
    const auto results = [&](auto&& compute) {
      const Written<T> to(op_, shape);
      compute(to.out.view(), to.saved());
      return to.result();
    };
    const Result<T> expected = results([&](const View<T>& out, const AllSaved<T>& saved) {
      op_.forward(rows_with_keys(problem_.inputs(), row, rows, 0), out, saved, nullptr);
    });
    EXPECT_TRUE(same_bits(expected, results(call)));
  }

  std::string step(Index tokens) {
    const Index row = lengths_[at_];
    if (row + tokens == 0) return "";
    AnyExecutor executor = drawn_executor(bytes_);
    said_ += "step " + std::to_string(tokens) + "; ";
    SCOPED_TRACE(said_);
    expect_rows(row, tokens, [&](const View<T>& out, const AllSaved<T>& saved) {
      decoder().step_on(rows_with_keys(problem_.inputs(), row, tokens, row), out, saved, &executor);
    });
    lengths_[at_] += tokens;
    return "";
  }

  /// The last row again, without a token.
  std::string look_again() {
    if (lengths_[at_] == 0) return "";
    const Index row = lengths_[at_] - 1;
    said_ += "look again; ";
    SCOPED_TRACE(said_);
    expect_rows(row, 1, [&](const View<T>& out, const AllSaved<T>& saved) {
      AllInputs<T> query = rows_with_keys(problem_.inputs(), row, 1, 0);
      query.k = query.v = {};
      query.beta = {};
      decoder().step(query, out, saved);
    });
    return "";
  }

  std::string fork() {
    AnyDecoder<T> other = decoder().fork();
    if (decoders_.size() < 3) {
      decoders_.push_back(std::move(other));
      lengths_.push_back(lengths_[at_]);
      return "fork; ";
    }
    decoders_[at_] = std::move(other);
    return "fork in place; ";
  }

  /// A refusal leaves everything as it was.
  std::string rollback(Index length) {
    try {
      decoder().rollback(length);
      lengths_[at_] = length;
    } catch (const std::invalid_argument&) {
      EXPECT_GT(length, 0) << "all tokens can always be forgotten";
      EXPECT_GT(lengths_[at_] - length, shape_.rollback_tokens);
      return "refused rollback; ";
    }
    return "rollback to " + std::to_string(length) + "; ";
  }

  std::string save_and_restore() {
    if (!decoder().save) return "";
    std::vector<std::byte> bytes = decoder().save();
    AnyDecoder<T> other = op_.decoder(shape_);
    if (bytes_.once_in(2)) {
      bytes.pop_back();
      EXPECT_THROW(other.restore(bytes), std::invalid_argument);
      EXPECT_EQ(other.length(), 0);
      return "refused restore; ";
    }
    other.restore(bytes);
    decoders_[at_] = std::move(other);
    return "restore; ";
  }

  /// Tokens of another width are refused, and change nothing.
  std::string refuse() {
    AllInputs<T> wrong = rows_with_keys(problem_.inputs(), 0, 1, 0);
    const Tensor<T> wider(
        {problem_.shape.batch, problem_.shape.key_heads, 1, problem_.shape.width + 1});
    wrong.k = wider.view();
    EXPECT_THROW(decoder().append(wrong), std::invalid_argument);
    return "refused append; ";
  }

  Bytes& bytes_;
  const Case<T>& op_;
  Problem<T> problem_;
  fovea::DecoderShape shape_;
  std::vector<AnyDecoder<T>> decoders_;
  std::vector<Index> lengths_ = {0};
  std::size_t at_ = 0;  // the decoder of this turn
  std::string said_;    // what was done so far
};

template <class T>
void try_decoder_in(Bytes& bytes) {
  const Case<T> op = drawn_case<T>(bytes);
  // Forward passes over a part of the tokens would be refused.
  if (!op.has_decoder || op.least_keys > 0) return;
  const AtLevel at(drawn_level(bytes));
  DecoderTrial<T>(bytes, op).run();
}

inline void try_decoder(std::span<const std::uint8_t> data) {
  Bytes bytes(data);
  if (bytes.once_in(2)) {
    try_decoder_in<OtherScalar>(bytes);
  } else {
    try_decoder_in<float>(bytes);
  }
}

}  // namespace fovea_test
