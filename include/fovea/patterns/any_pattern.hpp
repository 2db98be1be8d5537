// SPDX-License-Identifier: MIT
/// \file
/// Any pattern, and any plan, as one type. Operators hold such types, because their heads may have
/// different patterns. A call through one costs one virtual call per block, never one per pair.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "fovea/patterns/partition.hpp"
#include "fovea/patterns/stages.hpp"

FOVEA_NAMESPACE_BEGIN

/// A PartitionedPlan of any type. It is cheap to copy.
class AnyPlan {
 public:
  /// A plan without blocks.
  AnyPlan() = default;

  /// Holds the plan given.
  template <PartitionedPlan P>
  explicit AnyPlan(P plan) : plan_(std::make_shared<const Model<P>>(std::move(plan))) {}

  /// The number of blocks of query rows.
  Index block_count() const { return plan_ ? plan_->block_count() : 0; }
  /// The largest number of runs in a block, for BlockStorage.
  Index most_runs() const { return plan_ ? plan_->most_runs() : 0; }
  /// The distance between neighbouring rows of a block; 1 if it is not known.
  Index row_step() const { return plan_ ? plan_->row_step() : 1; }
  /// Block b of the query rows; its runs may point into the storage.
  QueryBlock block(Index b, BlockStorage& storage) const { return plan_->block(b, storage); }
  /// The rows of block b.
  Strip rows(Index b) const { return plan_->rows(b); }
  /// The number of visible (query, key) pairs; the largest Index if there are more.
  Index visible_pairs() const { return plan_ ? plan_->visible_pairs() : 0; }
  /// The number of blocks of keys.
  Index key_block_count() const { return plan_ ? plan_->key_block_count() : 0; }
  /// The largest number of keys in a block.
  Index largest_key_block() const { return plan_ ? plan_->largest_key_block() : 0; }
  /// Block p of the keys.
  KeyBlock key_block(Index p) const { return plan_->key_block(p); }
  /// A range that holds every block of queries that sees a key of block p.
  Range query_blocks(Index p) const { return plan_->query_blocks(p); }
  /// If this is false, block b of the queries sees no key of block p.
  bool meets(Index b, Index p) const { return plan_->meets(b, p); }
  /// A range that holds every block of keys that a block of queries sees.
  Range key_blocks(const QueryBlock& block) const { return plan_->key_blocks(block); }
  /// Which gradients block b of the queries takes part in.
  GradientRoles query_roles(Index b) const { return plan_->query_roles(b); }
  /// Which gradients block p of the keys takes part in.
  GradientRoles key_roles(Index p) const { return plan_->key_roles(p); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual Index block_count() const = 0;
    virtual Index most_runs() const = 0;
    virtual Index row_step() const = 0;
    virtual QueryBlock block(Index b, BlockStorage& storage) const = 0;
    virtual Strip rows(Index b) const = 0;
    virtual Index visible_pairs() const = 0;
    virtual Index key_block_count() const = 0;
    virtual Index largest_key_block() const = 0;
    virtual KeyBlock key_block(Index p) const = 0;
    virtual Range query_blocks(Index p) const = 0;
    virtual bool meets(Index b, Index p) const = 0;
    virtual Range key_blocks(const QueryBlock& block) const = 0;
    virtual GradientRoles query_roles(Index b) const = 0;
    virtual GradientRoles key_roles(Index p) const = 0;
  };

  template <class P>
  struct Model final : Interface {
    explicit Model(P p) : plan(std::move(p)) {}
    Index block_count() const override { return plan.block_count(); }
    Index most_runs() const override { return plan.most_runs(); }
    Index row_step() const override {
      if constexpr (requires { plan.row_step(); }) return plan.row_step();
      return 1;
    }
    QueryBlock block(Index b, BlockStorage& storage) const override {
      return plan.block(b, storage);
    }
    Strip rows(Index b) const override {
      if constexpr (requires { plan.rows(b); }) {
        return plan.rows(b);
      } else {
        BlockStorage storage(most_runs());
        const QueryBlock made = plan.block(b, storage);
        return {made.first, made.step, made.count};
      }
    }
    Index visible_pairs() const override { return plan.visible_pairs(); }
    Index key_block_count() const override { return plan.key_block_count(); }
    Index largest_key_block() const override {
      if constexpr (requires { plan.largest_key_block(); }) {
        return plan.largest_key_block();
      } else {
        Index most = 0;
        for (Index p = 0; p < plan.key_block_count(); ++p) {
          most = (std::max)(most, plan.key_block(p).count);
        }
        return most;
      }
    }
    KeyBlock key_block(Index p) const override { return plan.key_block(p); }
    Range query_blocks(Index p) const override { return plan.query_blocks(p); }
    bool meets(Index b, Index p) const override { return plan.meets(b, p); }
    Range key_blocks(const QueryBlock& block) const override { return plan.key_blocks(block); }
    GradientRoles query_roles(Index b) const override {
      if constexpr (requires { plan.query_roles(b); }) return plan.query_roles(b);
      return {};
    }
    GradientRoles key_roles(Index p) const override {
      if constexpr (requires { plan.key_roles(p); }) return plan.key_roles(p);
      return {};
    }
    P plan;
  };

  std::shared_ptr<const Interface> plan_;
};

/// The `reach()` of a pattern that has one; otherwise a reach without bounds.
template <class P>
Reach reach_of(const P& pattern) {
  if constexpr (requires { pattern.reach(); }) {
    return pattern.reach();
  } else {
    return {};
  }
}

/// The `key_columns()` of a pattern that has them; otherwise all keys.
template <class P>
KeyColumns key_columns_of(const P& pattern) {
  if constexpr (requires { pattern.key_columns(); }) {
    return pattern.key_columns();
  } else {
    return {};
  }
}

/// A Pattern or StagedPattern of any type. It is cheap to copy.
class AnyPattern {
 public:
  /// Holds a copy of the pattern.
  template <class P>
  requires(!std::same_as<P, AnyPattern> && (Pattern<P> || StagedPattern<P>))
      // NOLINTNEXTLINE(google-explicit-constructor): it stands for any of them
      AnyPattern(const P& pattern)
      : pattern_(std::make_shared<const Model<P>>(pattern)) {}

  /// The law of the pattern: whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return pattern_->allows(i, j); }

  /// The number of stages, at least 1. Operators execute them one after the other, and no key is
  /// shown by two of them.
  Index stage_count() const { return pattern_->stage_count(); }

  /// The plan of one stage for a sequence. \pre stage < stage_count()
  AnyPlan plan(Index stage, const SequenceShape& shape) const {
    return pattern_->plan(stage, shape);
  }
  /// How far before and after itself a query sees keys in this stage.
  Reach reach(Index stage) const { return pattern_->reach(stage); }
  /// The only keys that queries see in this stage.
  KeyColumns key_columns(Index stage) const { return pattern_->key_columns(stage); }

  /// Whether what the rows of a sequence see depends on their positions: one of them does not see
  /// every key, or a stage has a Reach.
  bool knows_positions(const SequenceShape& shape) const {
    for (Index s = 0; s < stage_count(); ++s) {
      if (reach(s).before < kFarPosition || reach(s).after < kFarPosition) return true;
    }
    return visible_pairs(shape) != add_pairs(0, shape.queries, shape.keys);
  }

  /// The number of visible (query, key) pairs in all stages; the largest Index if there are more.
  Index visible_pairs(const SequenceShape& shape) const {
    Index pairs = 0;
    for (Index s = 0; s < stage_count(); ++s) {
      pairs = add_pairs(pairs, 1, plan(s, shape).visible_pairs());
    }
    return pairs;
  }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual bool allows(Index i, Index j) const = 0;
    virtual Index stage_count() const = 0;
    virtual AnyPlan plan(Index stage, const SequenceShape& shape) const = 0;
    virtual Reach reach(Index stage) const = 0;
    virtual KeyColumns key_columns(Index stage) const = 0;
  };

  template <class P>
  struct Model final : Interface {
    explicit Model(const P& p) : pattern(p) {}
    bool allows(Index i, Index j) const override { return pattern.allows(i, j); }
    Index stage_count() const override { return static_cast<Index>(kStageCount<P>); }
    AnyPlan plan(Index stage, const SequenceShape& shape) const override {
      AnyPlan made;
      for_each_stage(pattern, [&](const auto& p, auto number) {
        if (static_cast<Index>(number) == stage) made = AnyPlan(p.plan(shape));
      });
      return made;
    }
    Reach reach(Index stage) const override {
      Reach found;
      for_each_stage(pattern, [&](const auto& p, auto number) {
        if (static_cast<Index>(number) == stage) found = reach_of(p);
      });
      return found;
    }
    KeyColumns key_columns(Index stage) const override {
      KeyColumns found;
      for_each_stage(pattern, [&](const auto& p, auto number) {
        if (static_cast<Index>(number) == stage) found = key_columns_of(p);
      });
      return found;
    }
    P pattern;
  };

  std::shared_ptr<const Interface> pattern_;
};

/// The number of stages of a pattern of any type, AnyPattern included.
template <class P>
Index stage_count(const P& pattern) {
  if constexpr (std::same_as<P, AnyPattern>) {
    return pattern.stage_count();
  } else {
    return static_cast<Index>(kStageCount<P>);
  }
}

/// Calls f(plan, stage) for the plan of each stage in turn. A pattern that is no AnyPattern is
/// planned without a virtual call and without memory from the heap.
template <class P, class F>
void for_each_plan(const P& pattern, const SequenceShape& shape, F&& f) {
  if constexpr (std::same_as<P, AnyPattern>) {
    for (Index stage = 0; stage < pattern.stage_count(); ++stage) {
      f(pattern.plan(stage, shape), stage);
    }
  } else {
    for_each_stage(
        pattern, [&](const auto& p, auto number) { f(p.plan(shape), static_cast<Index>(number)); });
  }
}

FOVEA_NAMESPACE_END
