// SPDX-License-Identifier: MIT
/// \file
/// Redistributes rows: for example from windows to causal balance, or to one rank and back.
#pragma once

#include <memory>
#include <string>

#include "fovea/attention/attention.hpp"
#include "fovea/core/tensor_check.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// \throws std::invalid_argument
template <class T>
void check_redistribution(const View<const T>& from, const Sharding& from_rows, const View<T>& to,
                          const Sharding& to_rows) {
  constexpr const char* name = "redistribute";
  if (from_rows.layout().ranks() != to_rows.layout().ranks()) {
    refuse(name,
           "the layouts have " + std::to_string(from_rows.layout().ranks()) + " and " +
               std::to_string(to_rows.layout().ranks()) + " ranks",
           "expected equal numbers");
  }
  if (from_rows.count() != to_rows.count()) {
    refuse(name,
           "the layouts have " + std::to_string(from_rows.count()) + " and " +
               std::to_string(to_rows.count()) + " rows",
           "expected equal numbers");
  }
  const std::string whose =
      std::string("the rows of rank ").append(std::to_string(from_rows.ranks().rank()));
  fovea::detail::check_extent(name, "from", from.shape(), 2, from_rows.own_count(), whose);
  Shape expected = from.shape();
  expected[2] = to_rows.own_count();
  fovea::detail::check_extents(name, "to", to.shape(), expected,
                               "the shape of from with the rows of this rank");
  fovea::detail::check_written_layout(name, "to", to);
}

}  // namespace detail

/// Moves a tensor's rows to the ranks that hold them in another layout. Collective. A layout with
/// all rows on one rank gathers or scatters.
/// \param from [B, H, own rows, W], laid out by from_rows
/// \param to [B, H, own rows, W], laid out by to_rows, written; it may share memory with `from`
/// \returns this rank's communication statistics
/// \throws on all ranks what one of them throws, with its number, before anything is written:
/// std::invalid_argument if shapes or layouts do not match, std::bad_alloc; std::runtime_error if
/// MPI fails. Memory: the rank's rows in both layouts.
template <class X, class Y, class T = Scalar<Y>>
CommStats redistribute(const X& from, const Sharding& from_rows, Y&& to, const Sharding& to_rows) {
  const View<const T> x(from);
  const View<T> y(to);
  const Communicator& ranks = from_rows.ranks();
  struct Move {
    Move(const View<const T>& x, const Sharding& from_rows, const Sharding& to_rows)
        : rows(x.batch(), from_rows.count(), {{x.heads(), x.width()}}),
          exchange(from_rows.ranks(), rows,
                   {ExchangePlan::of(from_rows.layout(), from_rows.ranks().rank(),
                                     [&](int rank) { return to_rows.layout().of(rank); })}) {}
    RowTensors<T> rows;
    Exchange exchange;
  };
  std::unique_ptr<Move> move;
  std::string call("redistribute of ");
  call.append(std::to_string(from_rows.count())).append(" rows, ");
  call.append(std::to_string(sizeof(T))).append(" bytes per number, ");
  call.append(detail::sizes_text(x)).append(" (batch, heads, width)");
  const auto prepare = [&] {
    detail::check_redistribution(x, from_rows, y, to_rows);
    move = std::make_unique<Move>(x, from_rows, to_rows);
  };
  // Not symmetric: the reverse is a different call.
  detail::together(ranks, call, prepare, 3 * from_rows.number() + to_rows.number());
  const CommStats before = ranks.comm_stats();
  move->rows.expect(from_rows.own());
  move->rows.put(0, x, from_rows.own());
  move->exchange.begin();
  move->exchange.begin_stage(0);
  move->rows.get(0, y, to_rows.own());
  move->exchange.end();
  return ranks.comm_stats() - before;
}

}  // namespace distributed

FOVEA_NAMESPACE_END
