// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of few queries (decode path): heads that share a key head and a pattern read
/// its keys once, and threads share a head's keys.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fovea/attention/softmax/call.hpp"
#include "fovea/attention/softmax/operator_ref.hpp"
#include "fovea/attention/softmax/split_kv.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

/// Whether rows are computed by SplitKv rather than as blocks: if they are few, or if blocks would
/// leave most lanes empty or threads idle. The bits are the same. (In measurements on AVX2, blocks
/// are faster from 8 rows on, which fill a vector and need no horizontal sums.)
/// \param period the patterns of heads repeat after this many query heads
/// \param pattern_of pattern_of(h) is the pattern of query head h
inline bool prefers_split_kv(const SequenceShape& rows, const HeadGroups& groups, Index batch,
                             Index period, Index workers,
                             FunctionRef<AnyPattern(Index)> pattern_of) {
  constexpr Index fewest_rows = 8;  // smallest block that fills enough lanes
  if (rows.queries * groups.most_heads() > kMostRows) return false;
  const bool shares_keys = rows.keys > kKeySegment;  // with other threads
  if (rows.queries < fewest_rows) return true;
  if (shares_keys && batch * groups.head_count() < workers) return true;
  bool filled = true;
  for (Index h = 0; h < period; ++h) {
    const AnyPattern pattern = pattern_of(h);
    for (Index pass = 0; pass < pattern.pass_count(); ++pass) {
      filled = filled && pattern.plan(pass, rows).block_count() * fewest_rows <= rows.queries;
    }
  }
  return !filled;
}

/// The head groups and patterns of a call, for computing few queries.
class SplitKvForward {
 public:
  /// \param call its sequences must not be packed
  template <class T>
  SplitKvForward(const HeadPatterns& op, const SoftmaxCall<T>& call)
      : call_(call.shape()),
        period_(op.period(call_.query_heads)),
        groups_(call_.query_heads, call_.key_heads, period_,
                (std::max<Index>)(1, kMostRows / (std::max<Index>)(1, call_.queries))) {
    for (Index s = 0; s < call.sequences().different(); ++s) {
      shapes_.push_back(call.sequences()[s].shape());
      for (Index h = 0; h < period_; ++h) patterns_.push_back(op.pattern(h, shapes_.back()));
    }
  }

  /// Whether a call is computed this way.
  bool applies(Index workers) const {
    for (Index n = 0; n < count(); ++n) {
      if (!prefers_split_kv(shape(n), groups_, call_.batch, period_, workers,
                            [&](Index h) { return pattern(n, h); })) {
        return false;
      }
    }
    return count() > 0;
  }

  /// Computes the pass. Its lists come from the system, but are counted.
  /// \throws std::bad_alloc before anything is written
  template <class T>
  void run(const SoftmaxCall<T>& call, const View<T>& out, const SoftmaxSaved<T>& saved,
           const ExecutorRef& executor) const {
    const std::vector<DecodePlan> plans = this->plans();
    if (plans.size() > 1) return run_each(plans, call, out, saved, executor);
    SplitKv<T> split = this->split<T>(plans[0]);
    if (executor.only_counts()) {
      executor.memory().take(1,
                             plans[0].memory_bytes() + split.scratch_bytes(executor.concurrency()));
      return;
    }
    auto&& threads = for_work(executor, [&] { return split.products(); });
    auto&& memory = memory_of(threads);
    Workspace scratch =
        memory.take(1, split.scratch_bytes(worker_count(threads, split.task_count())));
    memory.require();
    split.run([&](KeySource /*source*/, Index b,
                  Index h) { return call.args(call.sequences()[b], h, out, saved); },
              scratch.data<std::byte>(), threads);
  }

 private:
  /// Computes the pass if sequences differ: the tasks of all of them together.
  template <class T>
  void run_each(const std::vector<DecodePlan>& plans, const SoftmaxCall<T>& call,
                const View<T>& out, const SoftmaxSaved<T>& saved,
                const ExecutorRef& executor) const {
    std::vector<SplitKv<T>> splits;
    std::vector<Index> first_task = {0};  // first task of each split
    double products = 0;
    for (const DecodePlan& plan : plans) {
      splits.push_back(split<T>(plan));
      first_task.push_back(first_task.back() + splits.back().task_count());
      products += rounded(splits.back().products());
    }
    auto&& threads = for_work(executor, [&] { return products; });
    const Index workers = worker_count(threads, first_task.back());
    auto&& memory = memory_of(threads);
    std::vector<Workspace> scratch;
    for (const auto& of : splits) scratch.push_back(memory.take(1, of.scratch_bytes(workers)));
    memory.require();
    for (std::size_t n = 0; n < splits.size(); ++n) {
      const Sequence sequence = call.sequences()[static_cast<Index>(n)];
      splits[n].begin([&](KeySource /*source*/, Index /*b*/,
                          Index h) { return call.args(sequence, h, out, saved); },
                      scratch[n].template data<std::byte>());
    }
    for_each_task(threads, first_task.back(), [&](Index task, Index worker) {
      const auto first = std::upper_bound(first_task.begin(), first_task.end(), task) - 1;
      splits[static_cast<std::size_t>(first - first_task.begin())].compute(task - *first, worker);
    });
    for (const auto& of : splits) of.merge();
  }

  Index count() const { return static_cast<Index>(shapes_.size()); }
  const SequenceShape& shape(Index n) const { return shapes_[static_cast<std::size_t>(n)]; }
  const AnyPattern& pattern(Index n, Index h) const {
    return patterns_[static_cast<std::size_t>(n * period_ + h)];
  }

  /// The lists of each distinct sequence.
  std::vector<DecodePlan> plans() const {
    std::vector<DecodePlan> plans(shapes_.size());
    for (Index n = 0; n < count(); ++n) {
      DecodePlan& plan = plans[static_cast<std::size_t>(n)];
      for (Index h = 0; h < period_; ++h) {
        const std::vector<KeySource> sources(static_cast<std::size_t>(pattern(n, h).pass_count()),
                                             KeySource::recent);
        plan.add(pattern(n, h), shape(n), sources.data());
      }
      plan.finish();
    }
    return plans;
  }

  /// The rows of the sequences with these lists.
  template <class T>
  SplitKv<T> split(const DecodePlan& plan) const {
    const Index batch = count() > 1 ? 1 : call_.batch;
    return {{batch, call_.width, call_.value_width, 1}, groups_, plan};
  }

  AttentionShape call_;
  Index period_;
  HeadGroups groups_;
  std::vector<SequenceShape> shapes_;  // of the distinct sequences
  std::vector<AnyPattern> patterns_;   // [shapes, period_]
};

FOVEA_NAMESPACE_END
