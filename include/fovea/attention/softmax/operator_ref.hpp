// SPDX-License-Identifier: MIT
/// \file
/// Type-erased references to softmax operators, so that passes are not compiled for each operator.
#pragma once

#include <algorithm>
#include <concepts>
#include <type_traits>

#include "fovea/attention/softmax/options.hpp"
#include "fovea/patterns/any_pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// A reference to an operator's patterns. The operator, which must outlive it, has
/// `pattern(head, shape)` and `pattern_period(heads)`.
class HeadPatterns {
 public:
  /// Refers to an operator, which may be a temporary if the reference is not used after the full
  /// expression.
  template <class Op>
  requires(!std::derived_from<Op, HeadPatterns>)
      // NOLINTNEXTLINE(google-explicit-constructor): type erasure
      HeadPatterns(const Op& op)
      : op_(&op),
        period_([](const void* of, Index heads) -> Index {
          return static_cast<const Op*>(of)->pattern_period(heads);
        }),
        pattern_([](const void* of, Index head, const SequenceShape& shape) {
          return AnyPattern(static_cast<const Op*>(of)->pattern(head, shape));
        }) {}

  /// Head h sees what head h % period(heads) sees.
  Index period(Index heads) const {
    return std::clamp<Index>(period_(op_, heads), 1, (std::max<Index>)(1, heads));
  }
  /// A head's pattern.
  AnyPattern pattern(Index head, const SequenceShape& shape) const {
    return pattern_(op_, head, shape);
  }

 protected:
  const void* op_;  ///< the operator

 private:
  Index (*period_)(const void*, Index);
  AnyPattern (*pattern_)(const void*, Index, const SequenceShape&);
};

/// The same with the common options of softmax operators.
class SoftmaxPatterns : public HeadPatterns {
 public:
  /// Refers to an operator as HeadPatterns does, which also has `softmax_options()`.
  template <class Op>
  requires(!std::derived_from<Op, SoftmaxPatterns>)
      // NOLINTNEXTLINE(google-explicit-constructor): type erasure
      SoftmaxPatterns(const Op& op)
      : HeadPatterns(op), options_(op.softmax_options()) {}

  /// The options.
  const SoftmaxOptions& options() const { return options_; }

 private:
  SoftmaxOptions options_;
};

/// A reference to a softmax operator (SoftmaxOperator), which must outlive it.
class SoftmaxOperatorRef : public SoftmaxPatterns {
 public:
  /// Refers to an operator, which may be a temporary if the reference is not used after the full
  /// expression.
  template <class Op>
  requires(!std::derived_from<Op, SoftmaxOperatorRef>)
      // NOLINTNEXTLINE(google-explicit-constructor): type erasure
      SoftmaxOperatorRef(const Op& op)
      : SoftmaxPatterns(op),
        name_(Op::name()),
        check_options_([](const void* of) { static_cast<const Op*>(of)->check_options(); }),
        check_pattern_([](const void* of, const SequenceShape& shape) {
          static_cast<const Op*>(of)->check_pattern(shape);
        }),
        knows_shape_(Op::kPatternKnowsShape) {
    if constexpr (requires { Op::kSumsInTiles; }) sums_in_tiles_ = Op::kSumsInTiles;
  }

  /// The name in messages.
  const char* name() const { return name_; }
  /// \throws std::invalid_argument if the operator's options are wrong
  void check_options() const { check_options_(op_); }
  /// \throws std::invalid_argument if the operator's options do not suit such a sequence
  void check_pattern(const SequenceShape& shape) const { check_pattern_(op_, shape); }
  /// Whether patterns depend on the sequence's shape.
  bool knows_shape() const { return knows_shape_; }
  /// Whether a decoder sums rows in tiles (SoftmaxBlockArgs::in_tiles).
  bool sums_in_tiles() const { return sums_in_tiles_; }

 private:
  const char* name_;
  void (*check_options_)(const void*);
  void (*check_pattern_)(const void*, const SequenceShape&);
  bool knows_shape_;
  bool sums_in_tiles_ = false;
};

FOVEA_NAMESPACE_END
