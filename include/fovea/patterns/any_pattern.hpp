// SPDX-License-Identifier: MIT
/// \file
/// Type-erased patterns and plans. Operators hold these, because their heads may have different
/// patterns. A call costs one indirect call per block, never one per pair.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "fovea/patterns/partition.hpp"
#include "fovea/patterns/passes.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// A constant object of any type that is cheap to copy: copies share a large one.
/// \tparam kSmall objects of at most this many bytes are stored in place if possible
template <std::size_t kSmall>
class SharedObject {
 public:
  SharedObject() = default;
  template <class X>
  explicit SharedObject(X x) {
    if constexpr (sizeof(X) <= kSmall && alignof(X) <= alignof(std::max_align_t) &&
                  std::is_trivially_copyable_v<X>) {
      ::new (static_cast<void*>(small_)) X(x);
    } else {
      large_ = std::make_shared<const X>(std::move(x));
    }
  }
  /// The object.
  const void* get() const { return large_ ? large_.get() : small_; }

 private:
  alignas(std::max_align_t) std::byte small_[kSmall] = {};
  std::shared_ptr<const void> large_;
};

}  // namespace detail

/// A PartitionedPlan of any type. It is cheap to copy, and plans of common windows need no heap
/// memory.
class AnyPlan {
 public:
  /// A plan without blocks.
  AnyPlan() = default;

  /// Holds a copy of the plan.
  template <PartitionedPlan P>
  explicit AnyPlan(P plan) : table_(&kTable<P>), plan_(std::move(plan)) {}

  /// The number of blocks of query rows.
  Index block_count() const { return table_ ? table_->block_count(plan_.get()) : 0; }
  /// The largest number of runs in a block, for BlockStorage.
  Index most_runs() const { return table_ ? table_->most_runs(plan_.get()) : 0; }
  /// The distance between neighbouring rows of a block; 1 if it is not known.
  Index row_step() const { return table_ ? table_->row_step(plan_.get()) : 1; }
  /// Block b of the query rows; its runs may point into the storage.
  QueryBlock block(Index b, BlockStorage& storage) const {
    return table_->block(plan_.get(), b, storage);
  }
  /// The rows of block b.
  RowBlock rows(Index b) const { return table_->rows(plan_.get(), b); }
  /// The number of visible (query, key) pairs; the largest Index if there are more.
  Index attended_pairs() const { return table_ ? table_->attended_pairs(plan_.get()) : 0; }
  /// The number of blocks of keys.
  Index key_block_count() const { return table_ ? table_->key_block_count(plan_.get()) : 0; }
  /// The largest number of keys in a block.
  Index largest_key_block() const { return table_ ? table_->largest_key_block(plan_.get()) : 0; }
  /// Block p of the keys.
  KeyBlock key_block(Index p) const { return table_->key_block(plan_.get(), p); }
  /// A range that contains every query block that sees a key of block p.
  Range query_blocks(Index p) const { return table_->query_blocks(plan_.get(), p); }
  /// If this is false, block b of the queries sees no key of block p.
  bool meets(Index b, Index p) const { return table_->meets(plan_.get(), b, p); }
  /// A range that contains every key block that a query block sees.
  Range key_blocks(const QueryBlock& block) const { return table_->key_blocks(plan_.get(), block); }
  /// Which gradients block b of the queries takes part in.
  GradientRoles query_roles(Index b) const { return table_->query_roles(plan_.get(), b); }
  /// Which gradients block p of the keys takes part in.
  GradientRoles key_roles(Index p) const { return table_->key_roles(plan_.get(), p); }

 private:
  struct Table {
    Index (*block_count)(const void*);
    Index (*most_runs)(const void*);
    Index (*row_step)(const void*);
    QueryBlock (*block)(const void*, Index, BlockStorage&);
    RowBlock (*rows)(const void*, Index);
    Index (*attended_pairs)(const void*);
    Index (*key_block_count)(const void*);
    Index (*largest_key_block)(const void*);
    KeyBlock (*key_block)(const void*, Index);
    Range (*query_blocks)(const void*, Index);
    bool (*meets)(const void*, Index, Index);
    Range (*key_blocks)(const void*, const QueryBlock&);
    GradientRoles (*query_roles)(const void*, Index);
    GradientRoles (*key_roles)(const void*, Index);
  };

  template <class P>
  static const P& as(const void* plan) {
    return *static_cast<const P*>(plan);
  }
  template <class P>
  static RowBlock rows_of(const P& plan, Index b) {
    if constexpr (requires { plan.rows(b); }) {
      return plan.rows(b);
    } else {
      BlockStorage storage(plan.most_runs());
      const QueryBlock made = plan.block(b, storage);
      return {made.first, made.step, made.count};
    }
  }
  template <class P>
  static Index largest_key_block_of(const P& plan) {
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
  template <class P>
  static constexpr Table kTable = {
      [](const void* p) -> Index { return as<P>(p).block_count(); },
      [](const void* p) -> Index { return as<P>(p).most_runs(); },
      [](const void* p) -> Index {
        if constexpr (requires { as<P>(p).row_step(); }) return as<P>(p).row_step();
        return 1;
      },
      [](const void* p, Index b, BlockStorage& storage) { return as<P>(p).block(b, storage); },
      [](const void* p, Index b) { return rows_of(as<P>(p), b); },
      [](const void* p) -> Index { return as<P>(p).attended_pairs(); },
      [](const void* p) -> Index { return as<P>(p).key_block_count(); },
      [](const void* p) { return largest_key_block_of(as<P>(p)); },
      [](const void* p, Index n) { return as<P>(p).key_block(n); },
      [](const void* p, Index n) { return as<P>(p).query_blocks(n); },
      [](const void* p, Index b, Index n) -> bool { return as<P>(p).meets(b, n); },
      [](const void* p, const QueryBlock& block) { return as<P>(p).key_blocks(block); },
      [](const void* p, Index b) -> GradientRoles {
        if constexpr (requires { as<P>(p).query_roles(b); }) return as<P>(p).query_roles(b);
        return {};
      },
      [](const void* p, Index n) -> GradientRoles {
        if constexpr (requires { as<P>(p).key_roles(n); }) return as<P>(p).key_roles(n);
        return {};
      }};

  const Table* table_ = nullptr;
  detail::SharedObject<176> plan_;  // a plan of a window or of blocks fits
};

/// The pattern's `receptive_field()` if it has one; otherwise unbounded.
template <class P>
ReceptiveField receptive_field_of(const P& pattern) {
  if constexpr (requires { pattern.receptive_field(); }) {
    return pattern.receptive_field();
  } else {
    return {};
  }
}

/// The pattern's `key_columns()` if it has them; otherwise all keys.
template <class P>
KeyColumns key_columns_of(const P& pattern) {
  if constexpr (requires { pattern.key_columns(); }) {
    return pattern.key_columns();
  } else {
    return {};
  }
}

/// A Pattern or MultiPassPattern of any type. It is cheap to copy.
class AnyPattern {
 public:
  /// Holds a copy of the pattern.
  template <class P>
  requires(!std::same_as<P, AnyPattern> && (Pattern<P> || MultiPassPattern<P>))
      // NOLINTNEXTLINE(google-explicit-constructor): type erasure
      AnyPattern(const P& pattern)
      : table_(&kTable<P>), pattern_(pattern) {}

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return table_->allows(pattern_.get(), i, j); }

  /// The number of passes, at least 1. Operators execute them in order, and no key is visible in
  /// two of them.
  Index pass_count() const { return table_->pass_count; }

  /// The plan of one pass for a sequence. \pre pass < pass_count()
  AnyPlan plan(Index pass, const SequenceShape& shape) const {
    return table_->plan(pattern_.get(), pass, shape);
  }
  /// How far before and after itself a query sees keys in this pass.
  ReceptiveField receptive_field(Index pass) const {
    return table_->receptive_field(pattern_.get(), pass);
  }
  /// The only keys that queries see in this pass.
  KeyColumns key_columns(Index pass) const { return table_->key_columns(pattern_.get(), pass); }

  /// Whether what a sequence's rows see depends on their positions: some row does not see every
  /// key, or a pass has a ReceptiveField.
  bool knows_positions(const SequenceShape& shape) const {
    for (Index s = 0; s < pass_count(); ++s) {
      if (receptive_field(s).before < kFarPosition || receptive_field(s).after < kFarPosition)
        return true;
    }
    return attended_pairs(shape) != add_pairs(0, shape.queries, shape.keys);
  }

  /// The number of visible (query, key) pairs in all passes; the largest Index if there are more.
  Index attended_pairs(const SequenceShape& shape) const {
    Index pairs = 0;
    for (Index s = 0; s < pass_count(); ++s) {
      pairs = add_pairs(pairs, 1, plan(s, shape).attended_pairs());
    }
    return pairs;
  }

 private:
  struct Table {
    bool (*allows)(const void*, Index, Index);
    Index pass_count;
    AnyPlan (*plan)(const void*, Index, const SequenceShape&);
    ReceptiveField (*receptive_field)(const void*, Index);
    KeyColumns (*key_columns)(const void*, Index);
  };

  /// f's result for one pass of a pattern.
  template <class R, class P, class F>
  static R of_pass(const void* pattern, Index pass, const F& f) {
    R found;
    for_each_pass(*static_cast<const P*>(pattern), [&](const auto& p, auto number) {
      if (static_cast<Index>(number) == pass) found = f(p);
    });
    return found;
  }
  template <class P>
  static constexpr Table kTable = {
      [](const void* p, Index i, Index j) -> bool {
        return static_cast<const P*>(p)->allows(i, j);
      },
      static_cast<Index>(kPassCount<P>),
      [](const void* p, Index pass, const SequenceShape& shape) {
        return of_pass<AnyPlan, P>(p, pass, [&](const auto& s) { return AnyPlan(s.plan(shape)); });
      },
      [](const void* p, Index pass) {
        return of_pass<ReceptiveField, P>(p, pass,
                                          [](const auto& s) { return receptive_field_of(s); });
      },
      [](const void* p, Index pass) {
        return of_pass<KeyColumns, P>(p, pass, [](const auto& s) { return key_columns_of(s); });
      }};

  const Table* table_;
  detail::SharedObject<64> pattern_;
};

FOVEA_NAMESPACE_END
