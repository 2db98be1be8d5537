// SPDX-License-Identifier: MIT
/// \file
/// A sequence of which a decoder has the first tokens.
#pragma once

#include "attention/conformance.hpp"
#include "attention/pieces.hpp"

namespace fovea_test {

template <class T>
struct BegunSequence {
  static constexpr Index kBefore = 90;
  static constexpr Index kAll = 130;

  const Case<T>& op;
  Problem<T> problem = make_problem(op, AttentionShape{1, 4, 2, kAll, kAll, 8, 8});
  fovea::DecoderShape shape = decoder_shape(problem.shape);

  /// The tokens [first, first + count) and their queries.
  AllInputs<T> tokens(Index first, Index count) const {
    return rows_with_keys(problem.inputs(), first, count, first);
  }

  /// A decoder's results for the next tokens.
  Result<T> next(const AnyDecoder<T>& decoder, Index count, AnyExecutor* executor = nullptr) const {
    const Written<T> to(op, {1, 4, count, 8});
    decoder.step_on(tokens(decoder.length(), count), to.out.view(), to.saved(), executor);
    return to.result();
  }

  /// Gives a decoder the first tokens.
  void begin(const AnyDecoder<T>& decoder) const {
    for (const Index count : {33, 1, 50, 6}) next(decoder, count);
  }
  AnyDecoder<T> decoder() const {
    AnyDecoder<T> made = op.decoder(shape);
    begin(made);
    return made;
  }
};

}  // namespace fovea_test
