// SPDX-License-Identifier: MIT
/// \file
/// The sequences of one call, whether they are the batch entries of padded tensors or packed one
/// after the other in the rows of a single one.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/attention.hpp"

FOVEA_NAMESPACE_BEGIN

/// Where one sequence lies in the tensors.
struct Sequence {
  Index index = 0;        ///< its number: the batch entry, or the place in the packing
  Index batch = 0;        ///< its batch entry in the tensors; 0 if packed
  Index first_query = 0;  ///< the row of q where its queries begin
  Index queries = 0;      ///< number of its query rows
  Index first_key = 0;    ///< the row of k and v where its keys begin
  Index keys = 0;         ///< number of its rows of k and v
  Index key_end = 0;      ///< its keys from this one on are invisible
};

/// The sequences of one call, whose inputs are checked. It refers to the lengths in the inputs,
/// which must outlive it.
template <class T>
class Sequences {
 public:
  /// The sequences of these inputs.
  template <detail::InputsFor<T> In>
  explicit Sequences(const In& inputs)
      : batch_(inputs.q.batch()),
        queries_(inputs.q.rows()),
        keys_(inputs.k.rows()),
        key_lengths_(inputs.key_lengths),
        cu_q_(inputs.cu_seqlens_q),
        cu_k_(inputs.cu_seqlens_k.empty() ? inputs.cu_seqlens_q : inputs.cu_seqlens_k) {}

  /// Whether the sequences are packed in one row of the batch.
  bool packed() const { return !cu_q_.empty(); }

  /// The number of sequences.
  Index count() const { return packed() ? static_cast<Index>(cu_q_.size()) - 1 : batch_; }

  /// Where sequence s lies.
  Sequence operator[](Index s) const {
    const auto at = static_cast<std::size_t>(s);
    if (packed()) {
      const Index keys = cu_k_[at + 1] - cu_k_[at];
      return {s, 0, cu_q_[at], cu_q_[at + 1] - cu_q_[at], cu_k_[at], keys, keys};
    }
    return {s, s, 0, queries_, 0, keys_, key_lengths_.empty() ? keys_ : key_lengths_[at]};
  }

 private:
  Index batch_;
  Index queries_;
  Index keys_;
  std::span<const Index> key_lengths_;
  std::span<const Index> cu_q_;
  std::span<const Index> cu_k_;
};

/// One piece of work: a head of a sequence, and which of its parts.
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
  /// \param parts called as parts(s, h), gives the number of parts of head h of sequence s; for
  /// sequences that are not packed it is asked for the first one alone
  template <class T, class Parts>
  SequenceTasks(const Sequences<T>& sequences, Index heads, Parts&& parts) : heads_(heads) {
    const Index different =
        sequences.packed() ? sequences.count() : (std::min<Index>)(sequences.count(), 1);
    first_.reserve(static_cast<std::size_t>(different * heads) + 1);
    first_.push_back(0);
    for (Index s = 0; s < different; ++s) {
      for (Index h = 0; h < heads; ++h) first_.push_back(first_.back() + parts(s, h));
    }
    const Index periods =
        sequences.packed() ? (std::min<Index>)(sequences.count(), 1) : sequences.count();
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
  std::vector<Index> first_;  // [rows + 1] first task of each row (sequence, head) that differs
};

FOVEA_NAMESPACE_END
