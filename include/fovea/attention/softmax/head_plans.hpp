// SPDX-License-Identifier: MIT
/// \file
/// The plans of one call, for each pass, sequence and head.
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
      std::vector<AnyPlan>& passes = of_heads.emplace_back();
      for (Index pass = 0; pass < passes_; ++pass) {
        const std::vector<AnyPlan> parts = cut(plan(pass, n / period_, n % period_));
        passes.insert(passes.end(), parts.begin(), parts.end());
      }
      made.passes_ = (std::max)(made.passes_, static_cast<Index>(passes.size()));
    }
    for (std::vector<AnyPlan>& passes : of_heads) {
      passes.resize(static_cast<std::size_t>(made.passes_));
      made.plans_.insert(made.plans_.end(), passes.begin(), passes.end());
    }
    return made;
  }

  /// The number of heads that may have different plans: head h has the plans of head h % period().
  Index period() const { return period_; }

  /// The largest number of passes of a head. Passes are executed in order.
  Index pass_count() const { return passes_; }

  /// A head's plan for one pass; without blocks if the head has no such pass.
  const AnyPlan& plan(Index pass, Index sequence, Index head) const {
    const Index s = sequences_ == 1 ? 0 : sequence;
    return plans_[static_cast<std::size_t>((s * period_ + head % period_) * passes_ + pass)];
  }

  /// Whether it is the head's last pass.
  bool is_last(Index pass, Index sequence, Index head) const {
    return pass + 1 == passes_ || plan(pass + 1, sequence, head).block_count() == 0;
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
    for (const AnyPlan& plan : plans_) pairs += static_cast<double>(plan.attended_pairs());
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
        passes_ = (std::max)(passes_, patterns.back().pass_count());
      }
    }
    plans_.resize(patterns.size() * static_cast<std::size_t>(passes_));
    for (std::size_t n = 0; n < patterns.size(); ++n) {
      for (Index pass = 0; pass < patterns[n].pass_count(); ++pass) {
        plans_[n * static_cast<std::size_t>(passes_) + static_cast<std::size_t>(pass)] =
            patterns[n].plan(pass, shape_of(static_cast<Index>(n) / period_));
      }
    }
  }

  Index period_;
  Index sequences_;  // number of distinct sequences
  Index passes_ = 1;
  std::vector<AnyPlan> plans_;  // [sequences_, period_, stages_]
};

FOVEA_NAMESPACE_END
