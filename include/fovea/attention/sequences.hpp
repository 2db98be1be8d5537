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
  Index batch = 0;        ///< of the tensors
  Index first_query = 0;  ///< its query rows begin there
  Index queries = 0;
  Index first_key = 0;  ///< its rows of k and v begin there
  Index keys = 0;
  Index key_end = 0;  ///< its keys at and beyond this one are invisible
};

/// The sequences of checked inputs. Holds spans of them.
template <class T>
class Sequences {
 public:
  explicit Sequences(const Inputs<T>& inputs)
      : batch_(inputs.q.batch()),
        queries_(inputs.q.rows()),
        keys_(inputs.k.rows()),
        key_lengths_(inputs.key_lengths),
        cu_q_(inputs.cu_seqlens_q),
        cu_k_(inputs.cu_seqlens_k.empty() ? inputs.cu_seqlens_q : inputs.cu_seqlens_k) {}

  bool packed() const { return !cu_q_.empty(); }

  Index count() const { return packed() ? static_cast<Index>(cu_q_.size()) - 1 : batch_; }

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
  Index sequence;
  Index head;
  Index part;
};

/// The numbering of tasks (sequence, head, part): part is the fastest, sequence the slowest.
class SequenceTasks {
 public:
  /// \param parts parts(s): how many parts each head of sequence s has
  template <class T, class Parts>
  SequenceTasks(const Sequences<T>& sequences, Index heads, Parts&& parts) : heads_(heads) {
    if (sequences.count() == 0) return;
    if (!sequences.packed()) {
      equal_parts_ = parts(Index{0});
      count_ = sequences.count() * heads * equal_parts_;
      return;
    }
    first_.reserve(static_cast<std::size_t>(sequences.count()) + 1);
    for (Index s = 0; s < sequences.count(); ++s) {
      first_.push_back(count_);
      count_ += heads * parts(s);
    }
    first_.push_back(count_);
  }

  Index count() const { return count_; }

  /// The number of a task.
  Index number(Index sequence, Index head, Index part) const {
    if (first_.empty()) return (sequence * heads_ + head) * equal_parts_ + part;
    const auto s = static_cast<std::size_t>(sequence);
    return first_[s] + head * ((first_[s + 1] - first_[s]) / heads_) + part;
  }

  SequenceTask operator[](Index task) const {
    if (first_.empty()) {
      const Index row = task / equal_parts_;
      return {row / heads_, row % heads_, task % equal_parts_};
    }
    const auto after = std::upper_bound(first_.begin(), first_.end(), task);
    const Index s = static_cast<Index>(after - first_.begin()) - 1;
    const Index parts = (*after - *(after - 1)) / heads_;
    const Index rest = task - *(after - 1);
    return {s, rest / parts, rest % parts};
  }

 private:
  Index heads_;
  Index count_ = 0;
  Index equal_parts_ = 0;
  std::vector<Index> first_;  // task of each sequence, and their number; empty: equal parts
};

FOVEA_NAMESPACE_END
