// SPDX-License-Identifier: MIT
/// \file
/// A call of a softmax operator over a sequence that is spread over ranks: its checks, its sizes,
/// and the inputs of one range of rows as if all rows were there.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/distributed/row_tensors.hpp"
#include "fovea/distributed/rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// An operator of softmax attention over a pattern, which reads SoftmaxInputs.
template <class Op, class T>
concept PatternAttention =
    std::derived_from<Op, SoftmaxOperator<Op>> && std::same_as<InputsOf<Op, T>, SoftmaxInputs<T>>;

namespace detail {

/// Refuses what has an element for each pair of the sequence, or several sequences in one.
/// \throws std::invalid_argument
template <class T>
void check_spread(const char* op, const SoftmaxInputs<T>& in) {
  const auto refuse_given = [op](const char* what) {
    refuse(op, what, "given", "none, since the sequence is spread over ranks");
  };
  if (!in.bias.is_none()) refuse_given("bias");
  if (!in.mask.is_none()) refuse_given("mask");
  if (!in.cu_seqlens_q.empty() || !in.cu_seqlens_k.empty()) refuse_given("cu_seqlens");
}

/// A tensor of this rank must have as many rows as the rank holds.
/// \throws std::invalid_argument
template <class T>
void check_own_rows(const char* op, const char* tensor, const View<T>& x, const Rows& rows) {
  if (x.rows() == rows.own_count()) return;
  refuse_extent(op, tensor, x.shape(), 2,
                std::to_string(rows.own_count()) + ", the rows of rank " +
                    std::to_string(rows.ranks().rank()));
}

/// The shape that the operator's pattern sees.
template <class Op>
SequenceShape whole_sequence(const Op& op, const Rows& rows) {
  return SequenceShape::of(rows.count(), rows.count(), op.softmax_options().alignment);
}

/// Checks what this rank brings to a call.
/// \param check_tensors called with the inputs, without key lengths, which are of the whole
/// sequence \throws std::invalid_argument
template <class Op, class T, class Check>
void check_call(const Op& op, const SoftmaxInputs<T>& in, const Rows& rows,
                const Check& check_tensors) {
  check_spread(Op::name(), in);
  check_own_rows(Op::name(), "q", in.q, rows);
  check_own_rows(Op::name(), "k", in.k, rows);
  check_own_rows(Op::name(), "v", in.v, rows);
  SoftmaxInputs<T> own = in;
  own.key_lengths = {};
  check_tensors(own);
  fovea::detail::check_key_lengths(Op::name(), in.key_lengths, in.q.batch(), "q", rows.count(),
                                   "the sequence");
  op.check_pattern(whole_sequence(op, rows));
}

/// What is the same on all ranks of a call, in words.
template <class Op, class T>
std::string call_text(std::string_view pass, const SoftmaxInputs<T>& in, const Rows& rows) {
  const auto heads = [](const View<const T>& x) {
    return std::to_string(x.batch()) + "x" + std::to_string(x.heads()) + "x" +
           std::to_string(x.width());
  };
  std::string text(Op::name());
  text.append(pass).append(" of ").append(std::to_string(rows.count())).append(" rows, ");
  text += std::to_string(sizeof(T)) + " bytes a number, q " + heads(in.q) + ", k " + heads(in.k) +
          ", v " + heads(in.v) + " (batch, heads, width), key lengths";
  for (const Index length : in.key_lengths) text += " " + std::to_string(length);
  return text;
}

}  // namespace detail

/// The views of one range of this rank's rows, each row where it would be if all rows were there.
class OwnRange {
 public:
  /// \param range of the sequence   \param first the place of its first row among the rank's rows
  /// \param rows the number of rows of the sequence
  OwnRange(const Range& range, Index first, Index rows)
      : range_(range), first_(first), rows_(rows) {}

  /// The range.
  const Range& range() const { return range_; }

  /// The view of a tensor of the rank's rows; of none it is none.
  template <class T>
  View<T> of(const View<T>& local) const {
    return local.is_none() || local.size() == 0 ? View<T>()
                                                : moved_rows(local, first_, range_.begin, rows_);
  }

 private:
  Range range_;
  Index first_;
  Index rows_;
};

/// The ranges of a rank's rows.
inline std::vector<OwnRange> own_ranges(const Rows& rows) {
  std::vector<OwnRange> ranges;
  Index first = 0;
  for (const Range& range : rows.own()) {
    ranges.emplace_back(range, first, rows.count());
    first += range.end - range.begin;
  }
  return ranges;
}

}  // namespace distributed

FOVEA_NAMESPACE_END
