// SPDX-License-Identifier: MIT
/// \file
/// Exchanges rows in many short pieces: they are copied into one message, since a copy is faster
/// than MPI's handling of each piece.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/messages/exchange_plan.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The bytes of one row in all heads of all tensors.
inline Index bytes_of_row(const std::vector<RowsInWindow>& places) {
  Index bytes = 0;
  for (const RowsInWindow& place : places) bytes += place.heads * place.row_bytes;
  return bytes;
}

/// Packed transfers between the windows of all ranks, ordered by tensor, head and row. A rank sends
/// to one other rank at a time and receives from one, so it needs memory only for the largest
/// transfer of each kind.
class PackedExchange {
 public:
  /// \param data the first byte of the window   \param places of its tensors
  PackedExchange(const Communicator& ranks, std::byte* data,
                 const std::vector<RowsInWindow>& places)
      : ranks_(ranks),
        data_(data),
        places_(places),
        row_bytes_(bytes_of_row(places)),
        row_(detail::MpiType::row(ranks, row_bytes_)) {}

  /// Whether to pack rows: if they are in more than 256 pieces, shorter than 64 KiB on average.
  /// \param rows of one transfer
  bool takes(const std::vector<Range>& rows) const {
    Index heads = 0;
    for (const RowsInWindow& place : places_) heads += place.heads;
    const Index pieces = heads * static_cast<Index>(rows.size());
    return pieces > 256 && row_count(rows) * row_bytes_ < pieces * (Index{1} << 16);
  }

  /// Allocates memory for the transfers of a plan; may be called for several plans.
  /// \throws std::bad_alloc
  void reserve(const ExchangePlan& plan) {
    grow(sent_, plan.sends);
    grow(received_, plan.receives);
  }

  /// Exchanges the rows of a plan. Collective. \pre reserve(plan) was called
  /// \throws std::runtime_error if MPI fails
  void run(const ExchangePlan& plan) {
    for (int n = 1; n < ranks_.size(); ++n) {
      const Transfer* const to = of_rank(plan.sends, (ranks_.rank() + n) % ranks_.size());
      const Transfer* const from =
          of_rank(plan.receives, (ranks_.rank() - n + ranks_.size()) % ranks_.size());
      std::vector<MPI_Request> requests;
      if (from != nullptr) receive(*from, requests);
      if (to != nullptr) send(*to, requests);
      for (MPI_Request& request : requests) {
        ranks_.check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
      }
      if (from != nullptr) unpack(from->rows);
    }
  }

 private:
  static constexpr int kTag = 3;

  static const Transfer* of_rank(const std::vector<Transfer>& transfers, int rank) {
    const auto found = std::ranges::find(transfers, rank, &Transfer::rank);
    return found == transfers.end() ? nullptr : &*found;
  }

  void grow(Workspace& memory, const std::vector<Transfer>& transfers) const {
    Index rows = 0;
    for (const Transfer& transfer : transfers) rows = (std::max)(rows, row_count(transfer.rows));
    const Index bytes = Workspace::size_of(rows, row_bytes_);
    if (bytes > memory.size_bytes()) memory = Workspace(bytes);
  }

  /// Calls f(first row of a message, its number of rows): a count must fit an int.
  template <class F>
  static void for_each_message(const Transfer& transfer, const F& f) {
    constexpr Index most = (std::numeric_limits<int>::max)();
    const Index rows = row_count(transfer.rows);
    for (Index n = 0; n < rows; n += most) f(n, static_cast<int>((std::min)(most, rows - n)));
  }

  void receive(const Transfer& from, std::vector<MPI_Request>& requests) {
    for_each_message(from, [&](Index first, int count) {
      requests.push_back(MPI_REQUEST_NULL);
      ranks_.check(MPI_Irecv(received_.data<std::byte>() + first * row_bytes_, count, row_.get(),
                             from.rank, kTag, ranks_.mpi(), &requests.back()),
                   "MPI_Irecv");
    });
  }

  void send(const Transfer& to, std::vector<MPI_Request>& requests) {
    std::byte* packed = sent_.data<std::byte>();
    for_each_piece(to.rows, [&](std::byte* piece, std::size_t size) {
      std::memcpy(packed, piece, size);
      packed += size;
    });
    for_each_message(to, [&](Index first, int count) {
      requests.push_back(MPI_REQUEST_NULL);
      ranks_.check(MPI_Isend(sent_.data<std::byte>() + first * row_bytes_, count, row_.get(),
                             to.rank, kTag, ranks_.mpi(), &requests.back()),
                   "MPI_Isend");
    });
  }

  void unpack(const std::vector<Range>& rows) {
    const std::byte* packed = received_.data<std::byte>();
    for_each_piece(rows, [&](std::byte* piece, std::size_t size) {
      std::memcpy(piece, packed, size);
      packed += size;
    });
  }

  template <class F>
  void for_each_piece(const std::vector<Range>& rows, const F& f) const {
    for (const RowsInWindow& place : places_) {
      for (Index head = 0; head < place.heads; ++head) {
        for (const Range& range : rows) {
          const Range bytes = place.bytes(head, range);
          if (bytes.is_empty()) continue;
          f(data_ + bytes.begin, static_cast<std::size_t>(bytes.end - bytes.begin));
        }
      }
    }
  }

  const Communicator& ranks_;
  std::byte* data_;
  std::vector<RowsInWindow> places_;
  Index row_bytes_;
  detail::MpiType row_;  // a row of all heads of all tensors
  Workspace sent_;       // the largest transfer to another rank
  Workspace received_;   // and from one
};

}  // namespace distributed

FOVEA_NAMESPACE_END
