// SPDX-License-Identifier: MIT
/// \file
/// The sequences of one call: the batch entries of padded tensors, or sequences packed into the
/// rows of a single one.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/attention.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Where one sequence is in the tensors.
struct Sequence {
  Index index = 0;        ///< its number: the batch entry, or its index among packed sequences
  Index batch = 0;        ///< its batch entry in the tensors; 0 if packed
  Index first_query = 0;  ///< the row of q where its queries begin
  Index queries = 0;      ///< number of its query rows
  Index first_key = 0;    ///< the row of k and v where its keys begin
  Index keys = 0;         ///< number of its rows of k and v
  Index key_end = 0;      ///< its keys from this one on are invisible
  /// The position of its first query row, counted from its first key.
  Index first_position = 0;
  /// Its keys as patterns and plans count them: up to key_end if its queries end there, as for a
  /// packed sequence; otherwise all.
  Index plan_keys = 0;

  /// Its sizes, for patterns and plans.
  SequenceShape shape() const { return {queries, plan_keys, first_position}; }
};

/// The sequences of one call with checked inputs. Refers to the lengths and positions in the
/// inputs, which must outlive it.
template <class T>
class Sequences {
 public:
  /// The sequences of these inputs.
  /// \param alignment positions the query rows, unless the inputs do; not needed by operators that
  /// read no positions
  template <detail::InputsFor<T> In>
  explicit Sequences(const In& inputs, CausalAlignment alignment = CausalAlignment::bottom_right)
      : batch_(inputs.q.batch()),
        queries_(inputs.q.rows()),
        keys_(inputs.k.rows()),
        alignment_(alignment),
        key_lengths_(inputs.key_lengths),
        cu_q_(inputs.cu_seqlens_q),
        cu_k_(inputs.cu_seqlens_k.empty() ? inputs.cu_seqlens_q : inputs.cu_seqlens_k) {
    if constexpr (requires { inputs.first_positions; }) first_positions_ = inputs.first_positions;
    are_alike_ = !packed();
    if (first_positions_.empty() && alignment != CausalAlignment::key_length) return;
    for (Index s = 1; are_alike_ && s < count(); ++s) {
      are_alike_ = (*this)[s].first_position == (*this)[0].first_position;
    }
  }

  /// Whether the sequences are packed into one batch entry.
  bool packed() const { return !cu_q_.empty(); }

  /// The number of sequences.
  Index count() const { return packed() ? static_cast<Index>(cu_q_.size()) - 1 : batch_; }

  /// Whether the shapes of all sequences are the same, positions included; they may differ in their
  /// key lengths. Packed sequences count as different.
  bool are_alike() const { return are_alike_; }

  /// The number of sequences whose shapes may differ: the first represents all if they are alike.
  Index different() const { return are_alike_ ? (std::min<Index>)(count(), 1) : count(); }

  /// Where sequence s is.
  Sequence operator[](Index s) const {
    const auto at = static_cast<std::size_t>(s);
    Sequence made{s, s, 0, queries_, 0, keys_, key_lengths_.value_or(s, keys_)};
    if (packed()) {
      const Index keys = cu_k_[at + 1] - cu_k_[at];
      made = {s, 0, cu_q_[at], cu_q_[at + 1] - cu_q_[at], cu_k_[at], keys, keys};
    }
    made.plan_keys = made.keys;
    if (!first_positions_.empty()) {
      made.first_position = first_positions_[at];
      return made;
    }
    if (alignment_ == CausalAlignment::key_length) made.plan_keys = made.key_end;
    made.first_position =
        SequenceShape::of(made.queries, made.plan_keys, alignment_).first_position;
    return made;
  }

 private:
  Index batch_;
  Index queries_;
  Index keys_;
  CausalAlignment alignment_;
  bool are_alike_ = true;
  IndexSpan first_positions_;
  IndexSpan key_lengths_;
  IndexSpan cu_q_;
  IndexSpan cu_k_;
};

/// One piece of work: a part of a head of a sequence.
struct SequenceTask {
  Index sequence;  ///< number of the sequence
  Index head;      ///< query head or key head, as the caller counts them
  Index part;      ///< number of the part within the head
};

/// The numbering of the tasks (sequence, head, part): the part varies fastest and the sequence
/// slowest.
class SequenceTasks {
 public:
  /// \param heads number of heads of each sequence
  /// \param parts called as parts(s, h), returns the number of parts of head h of sequence s; for
  /// sequences that are alike it is called only for the first
  template <class T, class Parts>
  SequenceTasks(const Sequences<T>& sequences, Index heads, Parts&& parts) : heads_(heads) {
    const Index different = sequences.different();
    first_.reserve(static_cast<std::size_t>(different * heads) + 1);
    first_.push_back(0);
    for (Index s = 0; s < different; ++s) {
      for (Index h = 0; h < heads; ++h) first_.push_back(first_.back() + parts(s, h));
    }
    const Index periods =
        sequences.are_alike() ? sequences.count() : (std::min<Index>)(sequences.count(), 1);
    count_ = periods * first_.back();
  }

  /// The number of tasks.
  Index count() const { return count_; }

  /// The number of a task.
  Index number(Index sequence, Index head, Index part) const {
    const Index row = sequence * heads_ + head;
    const Index rows = static_cast<Index>(first_.size()) - 1;
    return row / rows * first_.back() + first_[static_cast<std::size_t>(row % rows)] + part;
  }

  /// The task of that number.
  SequenceTask operator[](Index task) const {
    const Index period = task / first_.back();
    const Index within = task % first_.back();
    const auto after = std::upper_bound(first_.begin(), first_.end(), within);
    const Index rows = static_cast<Index>(first_.size()) - 1;
    const Index row = period * rows + static_cast<Index>(after - first_.begin()) - 1;
    return {row / heads_, row % heads_, within - *(after - 1)};
  }

 private:
  Index heads_;
  Index count_ = 0;
  std::vector<Index> first_;  // [rows + 1] first task of each distinct row (sequence, head)
};

FOVEA_NAMESPACE_END
