// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of few queries: the heads that share a key head and a pattern read its keys
/// once, and threads share the keys of a head.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/softmax/call.hpp"
#include "fovea/attention/softmax/split_kv.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

/// Whether rows are computed by SplitKv rather than as blocks: if they are few, or if blocks would
/// leave most lanes empty or threads idle. The bits are the same. (In measurements on AVX2 blocks
/// are faster from 8 rows on, which fill a vector: their lanes need no sums over lanes.)
/// \param period the patterns of heads repeat after this many query heads
/// \param pattern_of pattern_of(h) is the pattern of query head h
template <class PatternOf>
bool prefers_split_kv(const SequenceShape& rows, const HeadGroups& groups, Index batch,
                      Index period, Index workers, const PatternOf& pattern_of) {
  constexpr Index fewest_rows = 8;  // of a block that is worth its lanes
  if (rows.queries * groups.most_heads() > kMostRows) return false;
  const bool shares_keys = rows.keys > kKeySegment;  // with other threads
  if (rows.queries < fewest_rows) return true;
  if (shares_keys && batch * groups.head_count() < workers) return true;
  bool filled = true;
  for (Index h = 0; h < period; ++h) {
    for_each_plan(pattern_of(h), rows, [&](const auto& plan, Index /*stage*/) {
      filled = filled && plan.block_count() * fewest_rows <= rows.queries;
    });
  }
  return !filled;
}

/// The patterns of a call's heads and the heads in groups, by which few queries are computed.
class FewQueries {
 public:
  /// \param op a softmax operator with `pattern(head, shape)` and `pattern_period(heads)`
  /// \param shape the sizes of each sequence
  template <class Op>
  FewQueries(const Op& op, const AttentionShape& call, const SequenceShape& shape)
      : call_(call),
        shape_(shape),
        period_(std::clamp<Index>(op.pattern_period(call.query_heads), 1,
                                  (std::max<Index>)(1, call.query_heads))),
        groups_(call.query_heads, call.key_heads, period_,
                (std::max<Index>)(1, kMostRows / (std::max<Index>)(1, shape.queries))) {
    for (Index h = 0; h < period_; ++h) patterns_.push_back(op.pattern(h, shape));
  }

  /// Whether a call is computed so.
  bool are_few(Index workers) const {
    return prefers_split_kv(shape_, groups_, call_.batch, period_, workers,
                            [&](Index h) -> const AnyPattern& { return pattern(h); });
  }

  /// Bytes of memory with that many workers: of the lists, which come from the system, and of
  /// scratch.
  template <class T>
  Index workspace_bytes(Index workers) const {
    const DecodePlan plan = this->plan();
    return plan.memory_bytes() + split<T>(plan).scratch_bytes(workers);
  }

  /// Computes the pass.
  /// \throws std::bad_alloc before anything is written
  template <class T, class E>
  void run(const SoftmaxCall<T>& call, const View<T>& out, const SoftmaxSaved<T>& saved,
           E&& executor) const {
    const DecodePlan plan = this->plan();
    SplitKv<T> split = this->split<T>(plan);
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
  const AnyPattern& pattern(Index h) const { return patterns_[static_cast<std::size_t>(h)]; }

  DecodePlan plan() const {
    DecodePlan plan;
    for (const AnyPattern& pattern : patterns_) {
      const std::vector<KeySource> sources(static_cast<std::size_t>(pattern.stage_count()),
                                           KeySource::recent);
      plan.add(pattern, shape_, sources.data());
    }
    plan.finish();
    return plan;
  }

  template <class T>
  SplitKv<T> split(const DecodePlan& plan) const {
    return {{call_.batch, call_.width, call_.value_width, 1}, groups_, plan};
  }

  AttentionShape call_;
  SequenceShape shape_;
  Index period_;
  HeadGroups groups_;
  std::vector<AnyPattern> patterns_;  // [period_]
};

FOVEA_NAMESPACE_END
