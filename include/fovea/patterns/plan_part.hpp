// SPDX-License-Identifier: MIT
/// \file
/// A part of a plan: some of its rows, with the keys of a range. The parts of a plan together
/// compute exactly what the whole plan computes, row by row and key by key.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "fovea/patterns/any_pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// The indices n for which a row block's index first + step n is in a range.
constexpr Range places_within(const RowBlock& row_block, const Range& range) {
  const auto reached = [&](Index x) {
    return std::clamp(ceil_div(x - row_block.first, row_block.step), Index{0}, row_block.count);
  };
  return range.is_empty() ? Range{} : Range{reached(range.begin), reached(range.end)};
}

/// Blocks of another plan, cut at the ends of ranges of rows and of keys. Pieces keep the order of
/// their blocks.
/// Cost: O(blocks + pieces) time and memory; if unseen pieces are left out, each is built once.
class PlanPart {
 public:
  /// Whether pieces of rows that see no key of the range are kept.
  enum class EmptyPieces {
    kept,     ///< all: every row is in a block
    left_out  ///< none
  };

  /// Some rows of a plan, with all keys that they see.
  /// \param rows ascending, disjoint
  PlanPart(AnyPlan whole, std::span<const Range> rows)
      : PlanPart(std::move(whole), rows, kEverywhere, EmptyPieces::kept) {}

  /// Some rows of a plan, with the keys in `seen`. The blocks of keys are those of the whole plan.
  PlanPart(AnyPlan whole, std::span<const Range> rows, const Range& seen, EmptyPieces unseen)
      : whole_(std::move(whole)), seen_(seen) {
    for (Index b = 0; b < whole_.block_count(); ++b) cut(whole_.rows(b), b, rows, pieces_);
    cut_keys({&kEverywhere, 1});
    if (unseen == EmptyPieces::kept) return;
    BlockStorage storage(whole_.most_runs());
    std::erase_if(pieces_,
                  [&](const Piece& piece) { return cut_block(piece, storage).run_count == 0; });
  }

  /// Computes the gradients of some rows of a square plan, as queries and as keys, visiting each
  /// pair once where possible. A block that crosses a range's end comes twice: whole, for the
  /// gradients of the other side, whose sums must not be split, and cut, for its own.
  /// \param own ascending, disjoint
  static PlanPart of_gradients(AnyPlan whole, std::span<const Range> own) {
    PlanPart part(std::move(whole), {});
    part.key_pieces_.clear();
    for (Index b = 0; b < part.whole_.block_count(); ++b) {
      add_roles(part.whole_.rows(b), b, own, part.pieces_, &GradientRoles::of_queries);
    }
    for (Index p = 0; p < part.whole_.key_block_count(); ++p) {
      add_roles(part.whole_.key_block(p), p, own, part.key_pieces_, &GradientRoles::of_keys);
    }
    part.find_largest_key_block();
    return part;
  }

  /// Which gradients block b of the queries takes part in.
  GradientRoles query_roles(Index b) const { return pieces_[static_cast<std::size_t>(b)].roles; }
  /// Which gradients block p of the keys takes part in.
  GradientRoles key_roles(Index p) const { return key_piece(p).roles; }

  /// The number of blocks of query rows.
  Index block_count() const { return static_cast<Index>(pieces_.size()); }
  /// The largest number of runs in a block, for BlockStorage.
  Index most_runs() const { return whole_.most_runs(); }

  /// The rows of block b.
  RowBlock rows(Index b) const {
    const Piece& piece = pieces_[static_cast<std::size_t>(b)];
    const RowBlock whole = whole_.rows(piece.block);
    return {whole.first + whole.step * piece.at.begin, whole.step, piece.at.end - piece.at.begin};
  }

  /// Block b of the query rows; its runs point into the storage.
  QueryBlock block(Index b, BlockStorage& storage) const {
    return cut_block(pieces_[static_cast<std::size_t>(b)], storage);
  }

  /// The number of visible (query, key) pairs; the largest Index if there are more. Builds every
  /// block.
  Index attended_pairs() const {
    BlockStorage storage(most_runs());
    Index pairs = 0;
    for (Index b = 0; b < block_count(); ++b) {
      const QueryBlock made = block(b, storage);
      for (Index n = 0; n < made.run_count; ++n) {
        for (Index r = 0; r < made.count; ++r) {
          const Range of_row = seen_by(made.runs[n], r);
          if (!of_row.is_empty()) pairs = add_pairs(pairs, 1, of_row.end - of_row.begin);
        }
      }
    }
    return pairs;
  }

  /// The number of blocks of keys.
  Index key_block_count() const { return static_cast<Index>(key_pieces_.size()); }
  /// The largest number of keys in a block.
  Index largest_key_block() const { return largest_key_block_; }
  /// Block p of the keys.
  KeyBlock key_block(Index p) const {
    const Piece& piece = key_piece(p);
    KeyBlock keys = whole_.key_block(piece.block);
    return {keys.first + keys.step * piece.at.begin, keys.step, piece.at.end - piece.at.begin};
  }
  /// A range that contains every query block that sees a key of block p.
  Range query_blocks(Index p) const {
    return pieces_of(pieces_, whole_.query_blocks(key_piece(p).block));
  }
  /// If this is false, block b of the queries sees no key of block p.
  bool meets(Index b, Index p) const {
    return whole_.meets(pieces_[static_cast<std::size_t>(b)].block, key_piece(p).block);
  }
  /// A range that contains every key block that a query block sees.
  Range key_blocks(const QueryBlock& block) const {
    return pieces_of(key_pieces_, whole_.key_blocks(block));
  }

 private:
  /// The indices `at` of a block of the whole plan.
  struct Piece {
    Index block;
    Range at;
    GradientRoles roles = {};
  };

  /// Adds a block both whole and cut, with the roles of each.
  /// \param own_role the gradients that belong to the block's own rows
  static void add_roles(const RowBlock& row_block, Index block, std::span<const Range> own,
                        std::vector<Piece>& pieces, bool GradientRoles::*own_role) {
    std::vector<Piece> cut_pieces;
    cut(row_block, block, own, cut_pieces);
    const Range all = {0, row_block.count};
    if (cut_pieces.size() == 1 && cut_pieces[0].at == all) return pieces.push_back(cut_pieces[0]);
    Piece whole = {block, all};
    whole.roles.*own_role = false;
    pieces.push_back(whole);
    for (Piece& piece : cut_pieces) {
      piece.roles = {false, false};
      piece.roles.*own_role = true;
      pieces.push_back(piece);
    }
  }

  static void cut(const RowBlock& row_block, Index block, std::span<const Range> ranges,
                  std::vector<Piece>& pieces) {
    // Skips ranges that end before the row block begins.
    const auto from = std::partition_point(
        ranges.begin(), ranges.end(), [&](const Range& r) { return r.end <= row_block.first; });
    const Index end = row_block.span().end;
    for (auto range = from; range != ranges.end() && range->begin < end; ++range) {
      const Range at = places_within(row_block, *range);
      if (!at.is_empty()) pieces.push_back({block, at});
    }
  }

  void cut_keys(std::span<const Range> keys) {
    key_pieces_.clear();
    for (Index p = 0; p < whole_.key_block_count(); ++p) {
      cut(whole_.key_block(p), p, keys, key_pieces_);
    }
    find_largest_key_block();
  }

  void find_largest_key_block() {
    largest_key_block_ = 0;
    for (const Piece& piece : key_pieces_) {
      largest_key_block_ = (std::max)(largest_key_block_, piece.at.end - piece.at.begin);
    }
  }

  const Piece& key_piece(Index p) const { return key_pieces_[static_cast<std::size_t>(p)]; }

  /// The pieces of some blocks.
  static Range pieces_of(const std::vector<Piece>& pieces, const Range& blocks) {
    if (blocks.is_empty()) return {};
    const auto first = [&](Index block) {
      return static_cast<Index>(
          std::partition_point(pieces.begin(), pieces.end(),
                               [&](const Piece& piece) { return piece.block < block; }) -
          pieces.begin());
    };
    return {first(blocks.begin), first(blocks.end)};
  }

  QueryBlock cut_block(const Piece& piece, BlockStorage& storage) const {
    QueryBlock block = whole_.block(piece.block, storage);
    block.first += block.step * piece.at.begin;
    block.count = piece.at.end - piece.at.begin;
    Index kept = 0;
    for (Index n = 0; n < block.run_count; ++n) {
      const KeyRun run = cut_run(block.runs[n], piece.at, kept, storage);
      if (run.count > 0) storage.runs()[kept++] = run;
    }
    block.runs = storage.runs();
    block.run_count = kept;
    return block;
  }

  /// The part of a run that some of a block's rows see; its bounds may go to those of run `number`.
  KeyRun cut_run(const KeyRun& run, const Range& rows, Index number, BlockStorage& storage) const {
    const Range points = places_within({run.first, run.step, run.count}, seen_);
    if (run.lower == nullptr) {
      if (points.is_empty()) return {};
      return {run.first + run.step * points.begin, run.step, points.end - points.begin};
    }
    Range hull = {points.end, points.begin};
    for (Index r = rows.begin; r < rows.end; ++r) {
      const Range of_row = seen_by(run, r).within(points);
      if (of_row.is_empty()) continue;
      hull = {(std::min)(hull.begin, of_row.begin), (std::max)(hull.end, of_row.end)};
    }
    if (hull.is_empty()) return {};
    // A run's bounds are in the interval of its own number or a later one, so nothing that is still
    // to be read is overwritten.
    Index* const lower = storage.lower(number);
    Index* const upper = storage.upper(number);
    for (Index r = rows.begin; r < rows.end; ++r) {
      const Range of_row = seen_by(run, r).within(hull);
      const bool sees = !of_row.is_empty();
      lower[r - rows.begin] = sees ? of_row.begin - hull.begin : 0;
      upper[r - rows.begin] = sees ? of_row.end - hull.begin : 0;
    }
    return {run.first + run.step * hull.begin, run.step, hull.end - hull.begin, lower, upper};
  }

  AnyPlan whole_;
  Range seen_;
  std::vector<Piece> pieces_;
  std::vector<Piece> key_pieces_;
  Index largest_key_block_ = 0;
};

FOVEA_NAMESPACE_END
