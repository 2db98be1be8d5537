// SPDX-License-Identifier: MIT
/// \file
/// The plans of one call, for each stage, sequence and head.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/softmax/call.hpp"
#include "fovea/attention/softmax/operator_ref.hpp"
#include "fovea/core/executor_ref.hpp"

FOVEA_NAMESPACE_BEGIN

/// The plans of each head of each sequence. Sequences that are alike share plans, and so do heads
/// that are `period()` apart, which have the same pattern.
class HeadPlans {
 public:
  /// The plans of all sequences of a call.
  template <class T>
  HeadPlans(const HeadPatterns& op, const SoftmaxCall<T>& call)
      : HeadPlans(op, call.inputs().q.heads(), call.sequences().different(),
                  [&](Index s) { return call.sequences()[s].shape(); }) {}

  /// The plans of sequences of this shape.
  HeadPlans(const HeadPatterns& op, Index heads, const SequenceShape& shape)
      : HeadPlans(op, heads, 1, [&](Index) { return shape; }) {}

  /// The same heads with each plan replaced by those that cut(plan) returns, which are executed in
  /// order.
  /// \param cut called as cut(plan), returns a vector of AnyPlan
  template <class Cut>
  HeadPlans cut(const Cut& cut) const {
    HeadPlans made(period_, sequences_);
    std::vector<std::vector<AnyPlan>> of_heads;
    for (Index n = 0; n < sequences_ * period_; ++n) {
      std::vector<AnyPlan>& stages = of_heads.emplace_back();
      for (Index stage = 0; stage < stages_; ++stage) {
        const std::vector<AnyPlan> parts = cut(plan(stage, n / period_, n % period_));
        stages.insert(stages.end(), parts.begin(), parts.end());
      }
      made.stages_ = (std::max)(made.stages_, static_cast<Index>(stages.size()));
    }
    for (std::vector<AnyPlan>& stages : of_heads) {
      stages.resize(static_cast<std::size_t>(made.stages_));
      made.plans_.insert(made.plans_.end(), stages.begin(), stages.end());
    }
    return made;
  }

  /// The number of heads that may have different plans: head h has the plans of head h % period().
  Index period() const { return period_; }

  /// The largest number of stages of a head. Stages are executed in order.
  Index stage_count() const { return stages_; }

  /// A head's plan for one stage; without blocks if the head has no such stage.
  const AnyPlan& plan(Index stage, Index sequence, Index head) const {
    const Index s = sequences_ == 1 ? 0 : sequence;
    return plans_[static_cast<std::size_t>((s * period_ + head % period_) * stages_ + stage)];
  }

  /// Whether it is the head's last stage.
  bool is_last(Index stage, Index sequence, Index head) const {
    return stage + 1 == stages_ || plan(stage + 1, sequence, head).block_count() == 0;
  }

  /// The multiply-adds of a pass with `of_pair` for each visible (query, key) pair, ignoring key
  /// lengths. The result may be too small, but exceeds kSerialProducts if the true number does.
  template <class T>
  double products(const SoftmaxCall<T>& call, Index of_pair) const {
    const AttentionShape shape = call.shape();
    const double one_key_each = static_cast<double>(of_pair * shape.batch * shape.query_heads) *
                                static_cast<double>(shape.queries);
    if (one_key_each > kSerialProducts) return one_key_each;
    double pairs = 0;  // of one period of heads, of the distinct sequences
    for (const AnyPlan& plan : plans_) pairs += static_cast<double>(plan.visible_pairs());
    const Index same = sequences_ == 1 ? call.sequences().count() : 1;
    return pairs * static_cast<double>(same * of_pair) * static_cast<double>(shape.query_heads) /
           static_cast<double>(period_);
  }

  /// The largest number of runs of a block, for BlockStorage.
  Index most_runs() const {
    return most([](const AnyPlan& plan) { return plan.most_runs(); });
  }
  /// The largest value over all plans.
  /// \param of called as of(plan), returns the value
  template <class Of>
  Index most(const Of& of) const {
    Index most = 0;
    for (const AnyPlan& plan : plans_) most = (std::max)(most, of(plan));
    return most;
  }

 private:
  /// Without plans, which are added later.
  HeadPlans(Index period, Index sequences) : period_(period), sequences_(sequences) {}

  HeadPlans(const HeadPatterns& op, Index heads, Index sequences,
            FunctionRef<SequenceShape(Index)> shape_of)
      : period_(op.period(heads)), sequences_(sequences) {
    std::vector<AnyPattern> patterns;
    patterns.reserve(static_cast<std::size_t>(sequences * period_));
    for (Index s = 0; s < sequences; ++s) {
      for (Index h = 0; h < period_; ++h) {
        patterns.push_back(op.pattern(h, shape_of(s)));
        stages_ = (std::max)(stages_, patterns.back().stage_count());
      }
    }
    plans_.resize(patterns.size() * static_cast<std::size_t>(stages_));
    for (std::size_t n = 0; n < patterns.size(); ++n) {
      for (Index stage = 0; stage < patterns[n].stage_count(); ++stage) {
        plans_[n * static_cast<std::size_t>(stages_) + static_cast<std::size_t>(stage)] =
            patterns[n].plan(stage, shape_of(static_cast<Index>(n) / period_));
      }
    }
  }

  Index period_;
  Index sequences_;  // number of distinct sequences
  Index stages_ = 1;
  std::vector<AnyPlan> plans_;  // [sequences_, period_, stages_]
};

FOVEA_NAMESPACE_END
