// SPDX-License-Identifier: MIT
/// \file
/// The projected keys and values of Linformer attention, sums over all tokens of a sharded
/// sequence: they are passed along the ranges of rows, then broadcast.
#pragma once

#include <algorithm>
#include <array>
#include <exception>
#include <vector>

#include "fovea/attention/linformer/projection.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/segments/segment_totals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// X = E k and X = F v of one call. A state is some rows of both of one key head, so that ranks
/// work on different ones at once. A reduction block of kReductionBlock tokens is summed by the
/// rank that holds its first one; other ranks send theirs, with their columns of E and F.
template <class T>
class ProjectionScan {
 public:
  /// Allocates all memory, and copies the rows to send.
  /// \param inputs of this rank's rows, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ProjectionScan(const LinformerInputs<T>& inputs, const Sharding& rows,
                 const ExecutorRef& executor)
      : inputs_(inputs),
        rows_(rows),
        shape_(shape_of(inputs)),
        owners_(rows.layout(), kReductionBlock),
        travels_(
            ExchangePlan::of(rows.layout(), rows.ranks().rank(),
                             [&](int rank) { return owners_.broken_rows(rows.layout(), rank); })),
        tokens_(shape_.batch, rows.count(),
                {{shape_.key_heads, shape_.width}, {shape_.key_heads, shape_.value_width}}),
        columns_(1, rows.count(),
                 {{inputs.key_projection.heads(), shape_.projected_keys},
                  {inputs.value_projection.heads(), shape_.projected_keys}}),
        tokens_travel_(rows.ranks(), tokens_, {travels_}),
        columns_travel_(rows.ranks(), columns_, {travels_}),
        workers_((std::max)(worker_count(executor, tasks(states())), Index{1})),
        slot_(LinformerProjection<T>::scratch_elements(shape_of_state(rows.count()))),
        scratch_(memory_of(executor).take(workers_, slot_ * Index{sizeof(T)})),
        scan_(rows.ranks(), owners_.layout(), ScanDirection::up, states(),
              state_elements() * Index{sizeof(T)}, (workers_ + 1) / 2 * kHeads) {
    if (states() > 0) find_pieces();
  }
  ProjectionScan(const ProjectionScan&) = delete;
  ProjectionScan& operator=(const ProjectionScan&) = delete;

  /// Computes both. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    tokens_travel_.run();
    columns_travel_.run();
    // Without tokens the sums are 0.
    if (states() > 0) std::fill_n(state(0), states() * state_elements(), T{0});
    const std::exception_ptr error =
        scan_.run([&](const ScanStep& scan_step, Index first, Index end) {
          for_each_task(executor, tasks(end - first), [&](Index task, Index worker) {
            const Range part = {first + task / 2 * kHeads, first + (task / 2 + 1) * kHeads};
            add(scan_step, static_cast<std::size_t>(task % 2), part.within({first, end}),
                scratch_.template data<T>() + worker * slot_);
          });
        });
    scan_.give_to_all();
    return error;
  }

  /// Writes them, each unless it has no tensor. \pre run was called
  void write(const View<T>& keys, const View<T>& values) {
    for (Index block = 0; block < blocks(); ++block) {
      write_block(block, 0, keys);
      write_block(block, 1, values);
    }
  }

 private:
  using Projection = LinformerProjection<T>;

  /// Heads of a task, which may share E.
  static constexpr Index kHeads = Projection::kHeadsAtOnce;

  /// Adjacent rows of whole reduction blocks, local or received.
  struct Piece {
    Range rows;
    std::array<LinformerProduct<T>, 2> products;  // without X
    std::vector<Index> lengths;                   // key lengths, counted from the first row
  };

  /// Key heads of all sequences.
  Index heads() const { return shape_.batch * shape_.key_heads; }
  /// The blocks of rows of X, as equal as possible.
  Index blocks() const {
    return (shape_.projected_keys + Projection::kRowsAtOnce - 1) / Projection::kRowsAtOnce;
  }
  Index rows_of_block() const {
    return blocks() == 0 ? 0 : (shape_.projected_keys + blocks() - 1) / blocks();
  }
  /// One per head and block; those of a block are contiguous.
  Index states() const { return blocks() * heads(); }
  /// Elements of a row of a state: one of both products.
  Index row_elements() const { return shape_.width + shape_.value_width; }
  Index state_elements() const { return rows_of_block() * row_elements(); }
  T* state(Index n) { return scan_.template state<T>(n); }
  /// The number of tasks for that many states, one of each product for some heads.
  static Index tasks(Index states) { return (states + kHeads - 1) / kHeads * 2; }

  /// The projection of that many tokens to the rows of a state.
  LinformerShape shape_of_state(Index tokens) const {
    LinformerShape shape = shape_;
    shape.keys = tokens;
    shape.projected_keys = rows_of_block();
    return shape;
  }

  /// A matrix and its transpose: columns of E are moved as rows.
  template <class U>
  static View<U> transposed(const View<U>& x) {
    if (x.size() == 0) return x;
    const Shape& shape = x.shape();
    const Shape& strides = x.strides();
    return View<U>(x.data(), {shape[0], shape[1], shape[3], shape[2]},
                   {strides[0], strides[1], strides[3], strides[2]});
  }

  /// Copies this rank's rows of split reduction blocks to where they are sent from or read, and
  /// finds its pieces.
  void find_pieces() {
    const std::vector<Range> all_broken = owners_.all_broken_rows(rows_.layout());
    for (const OwnRange& own : own_ranges(rows_)) {
      for (const Range& part : intersection(all_broken, {own.range()})) {
        const std::array<LinformerProduct<T>, 2> products = products_of(own, part);
        for (const std::size_t n : {std::size_t{0}, std::size_t{1}}) {
          tokens_.put(n, products[n].tokens, {part});
          columns_.put(n, transposed(products[n].projection), {part});
        }
      }
    }
    const int rank = rows_.ranks().rank();
    const std::vector<Range> broken = owners_.broken_rows(rows_.layout(), rank);
    for (const Range& part : broken) pieces_.push_back({part, brought(part), lengths_in(part)});
    const std::vector<Range> others = without(owners_.layout().of(rank), broken);
    for (const OwnRange& own : own_ranges(rows_)) {
      for (const Range& part : intersection(others, {own.range()})) {
        pieces_.push_back({part, products_of(own, part), lengths_in(part)});
      }
    }
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& x, const Piece& y) { return x.rows.begin < y.rows.begin; });
  }

  /// The products of some local rows of a range, in place.
  std::array<LinformerProduct<T>, 2> products_of(const OwnRange& own, const Range& part) const {
    const auto product = [&](const View<const T>& projection, const View<const T>& tokens) {
      LinformerProduct<T> p;
      p.projection = transposed(own.only(transposed(projection), part));
      p.tokens = own.only(tokens, part);
      return p;
    };
    return {product(inputs_.key_projection, inputs_.k),
            product(inputs_.value_projection, inputs_.v)};
  }

  /// The products of received rows.
  std::array<LinformerProduct<T>, 2> brought(const Range& part) const {
    const OwnRange all({0, rows_.count()}, 0, rows_.count());
    std::array<LinformerProduct<T>, 2> products;
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}}) {
      products[n].projection = transposed(View<const T>(all.only(columns_.tensor(n), part)));
      products[n].tokens = View<const T>(all.only(tokens_.tensor(n), part));
    }
    return products;
  }

  std::vector<Index> lengths_in(const Range& part) const {
    std::vector<Index> lengths(inputs_.key_lengths.begin(), inputs_.key_lengths.end());
    for (Index& length : lengths) length = std::clamp(length, part.begin, part.end) - part.begin;
    return lengths;
  }

  /// Rows of X of a block, of all heads.
  View<T> projected(Index block, std::size_t product) {
    const Index first = block * rows_of_block();
    const Index rows = (std::min)(rows_of_block(), shape_.projected_keys - first);
    const Index size = state_elements();
    return View<T>(
        state(block * heads()) + (product == 0 ? 0 : shape_.width),
        {shape_.batch, shape_.key_heads, rows, product == 0 ? shape_.width : shape_.value_width},
        {shape_.key_heads * size, size, row_elements(), 1});
  }

  /// Adds the tokens of a range to one product of some states.
  void add(const ScanStep& scan_step, std::size_t product, const Range& states, T* scratch) {
    for (Range part = states; !part.is_empty();) {
      const Index block = part.begin / heads();
      const Index end = (std::min)(part.end, (block + 1) * heads());
      auto piece = std::partition_point(pieces_.begin(), pieces_.end(), [&](const Piece& p) {
        return p.rows.begin < scan_step.rows.begin;
      });
      for (; piece != pieces_.end() && piece->rows.begin < scan_step.rows.end; ++piece) {
        add_piece(*piece, product, block, {part.begin - block * heads(), end - block * heads()},
                  scratch);
      }
      part.begin = end;
    }
  }

  void add_piece(const Piece& piece, std::size_t product, Index block, const Range& of_heads,
                 T* scratch) {
    LinformerProduct<T> p = piece.products[product];
    p.projected = projected(block, product);
    p.projection = moved_rows(p.projection, block * rows_of_block(), 0, p.projected.rows());
    p.adds = piece.rows.begin > 0;
    LinformerShape shape = shape_of_state(piece.rows.end - piece.rows.begin);
    shape.projected_keys = p.projected.rows();
    const Projection projection(shape, piece.lengths);
    const Index at_once = Projection::heads_at_once(p);
    for (Index head = of_heads.begin; head < of_heads.end; head += at_once) {
      projection.project_rows(p, {head, (std::min)(head + at_once, of_heads.end)}, 0, scratch);
    }
  }

  void write_block(Index block, std::size_t product, const View<T>& to) {
    fovea::detail::copy_tensor(projected(block, product), to, block * rows_of_block());
  }

  LinformerInputs<T> inputs_;
  const Sharding& rows_;
  LinformerShape shape_;   // of this rank's rows
  SegmentOwners owners_;   // of the reduction blocks
  ExchangePlan travels_;   // the rows of split ones
  RowTensors<T> tokens_;   // k and v of split reduction blocks
  RowTensors<T> columns_;  // E and F likewise, [1, heads, rows, P]
  Exchange tokens_travel_;
  Exchange columns_travel_;
  Index workers_;
  Index slot_;                 // scratch elements per worker
  Workspace scratch_;          // [workers, slot_]
  std::vector<Piece> pieces_;  // this rank's pieces, ascending
  PipelinedScan scan_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
