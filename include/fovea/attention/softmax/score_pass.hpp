// SPDX-License-Identifier: MIT
/// \file
/// Computes logits and weights of softmax attention as tensors. Used by attention/scores.hpp, not
/// by operators.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fovea/attention/softmax/forward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/kernels/layers/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The outputs for one call's logits and weights, all [B, Hq, Nq, Nk]. Those without a tensor are
/// not written.
template <class C>
struct ScoreTensors {
  View<C> raw = {};      ///< products with the scale
  View<C> capped = {};   ///< the same after soft cap and score modifier
  View<C> logits = {};   ///< input of the softmax
  View<C> weights = {};  ///< output of the softmax

  FOVEA_TENSORS(raw, capped, logits, weights)
};

/// The scratch memory of a ScorePass.
template <class T>
class ScoreMemory {
 public:
  /// The rows of queries that are multiplied at once.
  static constexpr Index kRows = 64;

  /// Memory for this many workers. \throws std::bad_alloc
  ScoreMemory(const HeadPlans& plans, Index width, Index workers)
      : most_runs_(plans.most_runs()),
        elements_(padded_size(kRows * (width + kKeyTile)) + padded_size(kKeyTile * width)),
        scratch_(workers, elements_ * Index{sizeof(Compute<T>)}),
        blocks_(workers, BlockStorage::bytes(most_runs_)) {}

  /// One worker's memory.
  struct WorkerScratch {
    BlockStorage storage;  ///< the runs of a block
    Compute<T>* queries;   ///< [kRows, D]
    Compute<T>* tile;      ///< [kRows, kKeyTile]
    Compute<T>* keys;      ///< [kKeyTile, D]
  };
  /// The memory of a worker.
  WorkerScratch slot(Index worker, Index width) {
    Compute<T>* const queries = scratch_.template data<Compute<T>>() + worker * elements_;
    std::byte* const block = blocks_.data<std::byte>() + worker * BlockStorage::bytes(most_runs_);
    return {{most_runs_, block},
            queries,
            queries + kRows * width,
            queries + padded_size(kRows * (width + kKeyTile))};
  }

 private:
  Index most_runs_;
  Index elements_;
  Workspace scratch_;
  Workspace blocks_;
};

/// One pass. A task is a query block of one head, as in SoftmaxForward, and computes the pairs that
/// the block's runs show, in tiles; for `raw` and `capped` it is some rows and all keys. Every
/// element is computed independently except for the sum of a row's weights, so the bits do not
/// depend on threads. \tparam Place as in SoftmaxForward
template <class T, class Place = KeysInPlace>
class ScorePass {
 public:
  /// \param call, plans must outlive this object
  ScorePass(const SoftmaxCall<T>& call, const HeadPlans& plans, const ScoreTensors<Compute<T>>& to,
            const Place& place = {})
      : call_(call), plans_(plans), to_(to), place_(place) {}

  /// Writes the tensors. Only users' patterns and the executor may throw.
  /// \param memory for as many workers as the executor has
  void run(ScoreMemory<T>& memory, const ExecutorRef& executor) const {
    const Index heads = call_.sequences().count() * query_heads();
    // Pairs that no task computes are hidden, or cross packed sequences.
    to_.for_each_tensor([&](const char*, const View<C>& x) { hide_all(x, executor); });
    if (!to_.raw.empty() || !to_.capped.empty()) {
      const Index parts = ceil_div(call_.shape().queries, ScoreMemory<T>::kRows);
      for_each_task(executor, heads * parts, [&](Index task, Index worker) {
        all_pairs(task / parts, task % parts * ScoreMemory<T>::kRows, slot(memory, worker));
      });
    }
    if (to_.logits.empty() && to_.weights.empty()) return;
    const Index parts = plans_.most([](const AnyPlan& plan) { return plan.block_count(); });
    for (Index pass = 0; pass < plans_.pass_count(); ++pass) {
      for_each_task(executor, heads * parts, [&](Index task, Index worker) {
        attended_pairs(pass, task / parts, task % parts, slot(memory, worker));
      });
    }
    if (to_.weights.empty()) return;
    const Index rows = call_.shape().queries;
    for_each_task(executor, heads * ceil_div(rows, ScoreMemory<T>::kRows), [&](Index task, Index) {
      const Task of = task_of(task % heads);
      const Index first = task / heads * ScoreMemory<T>::kRows;
      const Index end = (std::min)(first + ScoreMemory<T>::kRows, of.sequence.queries);
      for (Index n = first; n < end; ++n) weigh(of, n);
    });
  }

 private:
  using C = Compute<T>;
  static constexpr C kHidden = -std::numeric_limits<C>::infinity();
  using WorkerScratch = typename ScoreMemory<T>::WorkerScratch;

  /// One head of a sequence, and its kernel arguments.
  struct Task {
    Sequence sequence;
    Index head;
    HeadArgs<T> args;
  };

  Index query_heads() const { return call_.inputs().q.heads(); }

  WorkerScratch slot(ScoreMemory<T>& memory, Index worker) const {
    return memory.slot(worker, call_.inputs().q.width());
  }

  Task task_of(Index head, Index pass = 0) const {
    const Sequence s = call_.sequences()[head / query_heads()];
    Task of{s, head % query_heads(), call_.args(s, head % query_heads(), {}, {})};
    place_(pass, SequenceTask{s.index, of.head, 0}, of.args);
    return of;
  }

  static void hide_all(const View<C>& x, const ExecutorRef& executor) {
    for_each_task(executor, x.batch() * x.heads(), [&](Index head, Index) {
      for (Index n = 0; n < x.rows(); ++n) {
        for (Index j = 0; j < x.width(); ++j) x(head / x.heads(), head % x.heads(), n, j) = kHidden;
      }
    });
  }

  /// Writes `raw` and `capped` of some rows of a head.
  void all_pairs(Index head, Index first, WorkerScratch slot) const {
    const Task of = task_of(head);
    const Index rows = (std::min)(ScoreMemory<T>::kRows, of.sequence.queries - first);
    if (rows <= 0) return;
    const KeyRun run{0, 1, of.sequence.keys};
    const QueryBlock block{first, 1, rows, &run, 1};
    for (Index t = 0; t < run.count; t += kKeyTile) {
      const Tile tile{block, 0, rows, run, t, (std::min)(kKeyTile, run.count - t)};
      load_keys(of, tile, slot);
      multiply(of, tile, slot);
      for (Index r = 0; r < rows; ++r) {
        C* const z = slot.tile + r * kKeyTile;
        put(to_.raw, of, tile, r, z);
        bend(of, tile, r, {0, tile.keys}, z);
        put(to_.capped, of, tile, r, z);
      }
    }
  }

  /// Some rows of a block and some keys of a run.
  struct Tile {
    const QueryBlock& block;
    Index row;   // first row of the block
    Index rows;  // at most kRows
    const KeyRun& run;
    Index first;  // first key of the run
    Index keys;   // at most kKeyTile

    Index row_of(Index r) const { return block.first + block.step * (row + r); }
    Index key_of(Index t) const { return run.first + run.step * (first + t); }
  };

  /// Writes `logits` and `weights` of the pairs that a block's runs show.
  void attended_pairs(Index pass, Index head, Index part, WorkerScratch slot) const {
    const Task of = task_of(head, pass);
    const AnyPlan& plan = plans_.plan(pass, of.sequence.index, of.head);
    if (part >= plan.block_count()) return;
    const QueryBlock block = plan.block(part, slot.storage);
    for (Index n = 0; n < block.run_count; ++n) {
      const KeyRun& run = block.runs[n];
      const Index end =
          std::clamp<Index>(ceil_div(of.args.key_end - run.first, run.step), 0, run.count);
      for (Index t = 0; t < end; t += kKeyTile) {
        Tile tile{block, 0, 0, run, t, (std::min)(kKeyTile, end - t)};
        bool loaded = false;
        for (; tile.row < block.count; tile.row += tile.rows) {
          tile.rows = (std::min)(ScoreMemory<T>::kRows, block.count - tile.row);
          if (!is_seen(tile)) continue;
          if (!loaded) load_keys(of, tile, slot);
          loaded = true;
          multiply(of, tile, slot);
          for (Index r = 0; r < tile.rows; ++r) finish(of, tile, r, slot.tile + r * kKeyTile);
        }
      }
    }
  }

  /// The keys of a tile that its row r sees.
  static Range seen(const Tile& tile, Index r) {
    const Range all = seen_by(tile.run, tile.row + r);
    return Range{all.begin - tile.first, all.end - tile.first}.within({0, tile.keys});
  }
  static bool is_seen(const Tile& tile) {
    for (Index r = 0; r < tile.rows; ++r) {
      if (!seen(tile, r).is_empty()) return true;
    }
    return false;
  }

  /// Copies rows of a tensor of any strides and type.
  static void load(const StoredMatrix<kStorage<T>>& from, Index row, Index width, C* to) {
    const T* const data = static_cast<const T*>(from.data) + row * from.row;
    for (Index d = 0; d < width; ++d) to[d] = static_cast<C>(data[d * from.column]);
  }
  static void load_keys(const Task& of, const Tile& tile, const WorkerScratch& slot) {
    const Index width = of.args.width;
    if (width == 0) return;
    for (Index t = 0; t < tile.keys; ++t) {
      load(of.args.k, of.args.key_rows.row(tile.key_of(t)), width, slot.keys + t * width);
    }
  }

  /// Writes scale <q, k> of a tile, whose keys are loaded.
  static void multiply(const Task& of, const Tile& tile, const WorkerScratch& slot) {
    const Index width = of.args.width;
    for (Index r = 0; width > 0 && r < tile.rows; ++r) {
      load(of.args.q, tile.row_of(r), width, slot.queries + r * width);
    }
    ProductArgs<C> product;
    product.a = {slot.queries, width, 1};
    product.b = {slot.keys, 1, width};
    product.to = slot.tile;
    product.to_row = kKeyTile;
    product.rows = tile.rows;
    product.columns = tile.keys;
    product.steps = width;
    ProductKernels<C>{}.multiply(product);
    for (Index r = 0; r < tile.rows; ++r) {
      for (Index t = 0; t < tile.keys; ++t) slot.tile[r * kKeyTile + t] *= of.args.scale;
    }
  }

  /// Applies soft cap and modifier to some keys of a row of a tile.
  static void bend(const Task& of, const Tile& tile, Index r, const Range& keys, C* z) {
    const ScoreMap<C>& map = of.args.map;
    if (map.soft_cap != 0) {
      for (Index t = keys.begin; t < keys.end; ++t) {
        z[t] = map.soft_cap * std::tanh(z[t] / map.soft_cap);
      }
    }
    if (!map.modifier.is_used() || keys.is_empty()) return;
    const PairRow pairs{map.dropout.batch,
                        map.dropout.head,
                        of.args.first_position + tile.row_of(r),
                        0,
                        tile.key_of(keys.begin),
                        tile.run.step,
                        keys.end - keys.begin};
    map.modifier.value(map.modifier.modifier, pairs, z + keys.begin);
  }

  static void put(const View<C>& to, const Task& of, const Tile& tile, Index r, const C* z) {
    if (to.empty()) return;
    for (Index t = 0; t < tile.keys; ++t) {
      to(of.sequence.batch, of.head, of.sequence.first_query + tile.row_of(r),
         of.sequence.first_key + tile.key_of(t)) = z[t];
    }
  }

  /// Writes the logits of the pairs that one row of a tile sees.
  void finish(const Task& of, const Tile& tile, Index r, C* z) const {
    const ScoreMap<C>& map = of.args.map;
    const Index row = tile.row_of(r);
    const Range keys = seen(tile, r);
    bend(of, tile, r, keys, z);
    for (Index t = keys.begin; t < keys.end; ++t) {
      const Index key = tile.key_of(t);
      if (map.mask.data != nullptr && !map.mask.data[row * map.mask.row + key * map.mask.column]) {
        continue;
      }
      C s = z[t];
      if (map.bias.data != nullptr) {
        const C bias = map.bias.data[row * map.bias.row + key * map.bias.column];
        if (bias == kHidden) continue;
        s += bias;
      }
      if (map.alibi_slope != 0) {
        const Index distance = of.args.first_position + row - key;
        s -= rounded(map.alibi_slope * static_cast<C>(distance < 0 ? -distance : distance));
      }
      const Index n = of.sequence.first_query + row;
      const Index j = of.sequence.first_key + key;
      if (!to_.logits.empty()) to_.logits(of.sequence.batch, of.head, n, j) = s;
      if (!to_.weights.empty()) to_.weights(of.sequence.batch, of.head, n, j) = s;
    }
  }

  /// Converts a row's logits to weights, in all columns: columns of other sequences are hidden.
  void weigh(const Task& of, Index row) const {
    const auto at = [&](Index j) -> C& {
      return to_.weights(of.sequence.batch, of.head, of.sequence.first_query + row, j);
    };
    const Index columns = to_.weights.width();
    C most = kHidden;  // NaN if one of them is
    for (Index j = 0; j < columns; ++j) {
      if (at(j) > most || std::isnan(at(j))) most = at(j);
    }
    const bool sees_none = most == kHidden;
    double sum = 0;
    if (of.args.sink != nullptr) {
      if (*of.args.sink > most) most = *of.args.sink;
      sum = std::exp(static_cast<double>(*of.args.sink) - static_cast<double>(most));
    }
    for (Index j = 0; j < columns; ++j) {
      C& x = at(j);
      x = sees_none || x == kHidden ? C{0} : std::exp(x - most);
      sum += static_cast<double>(x);
    }
    for (Index j = 0; j < columns; ++j) {
      if (at(j) == 0) continue;  // hidden, or underflowed to 0
      at(j) = drop(of, row, j - of.sequence.first_key,
                   static_cast<C>(static_cast<double>(at(j)) / sum));
    }
  }

  /// A weight after dropout.
  static C drop(const Task& of, Index row, Index key, C weight) {
    const DropoutMap& drop = of.args.map.dropout;
    if (!of.args.map.drops()) return weight;
    const C draw =
        uniform_draw<C>(drop.seed, drop.batch, drop.head, of.args.first_position + row, key);
    if (static_cast<double>(draw) < drop.probability) return 0;
    return weight * static_cast<C>(1 / (1 - drop.probability));
  }

  const SoftmaxCall<T>& call_;
  const HeadPlans& plans_;
  ScoreTensors<C> to_;
  Place place_;
};

FOVEA_NAMESPACE_END
