// SPDX-License-Identifier: MIT
/// \file
/// Exchanges rows that are copied into one message for each rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
#include "fovea/distributed/rows/row_set.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Packed rows of all ranks. A rank sends to one other rank at a time and receives from one, so it
/// needs memory only for the largest transfer of each kind. A plan has `sends` and `receives`,
/// whose elements have a `rank` and its `rows`.
class PackedMessages {
 public:
  /// \param tag of the messages
  /// \param most rows of one message, whose number must fit an int; on all ranks the same
  PackedMessages(const Communicator& ranks, int tag, int most = (std::numeric_limits<int>::max)())
      : ranks_(ranks), tag_(tag), most_(most) {}

  /// Allocates memory for the transfers of a plan; may be called for several plans.
  /// \param row_bytes row_bytes(transfer) is the size of one packed row
  /// \throws std::bad_alloc
  template <class Plan, class RowBytes>
  void reserve(const Plan& plan, const RowBytes& row_bytes) {
    grow(sent_, plan.sends, row_bytes);
    grow(received_, plan.receives, row_bytes);
  }

  /// Exchanges the rows of a plan. Collective. \pre reserve(plan, row_bytes) was called
  /// \param for_each_piece for_each_piece(transfer, f) calls f(address, bytes) for pieces of rows
  /// \throws std::runtime_error if MPI fails
  template <class Plan, class RowBytes, class ForEachPiece>
  void run(const Plan& plan, const RowBytes& row_bytes, const ForEachPiece& for_each_piece) {
    for (int n = 1; n < ranks_.size(); ++n) {
      const auto to = of_rank(plan.sends, (ranks_.rank() + n) % ranks_.size());
      const auto from = of_rank(plan.receives, (ranks_.rank() - n + ranks_.size()) % ranks_.size());
      std::vector<MPI_Request> requests;
      if (from != plan.receives.end()) receive(*from, row_bytes(*from), requests);
      if (to != plan.sends.end()) {
        auto* packed = sent_.data<std::byte>();
        for_each_piece(*to, [&](const void* piece, std::size_t size) {
          std::memcpy(packed, piece, size);
          packed += size;
        });
        send(*to, row_bytes(*to), requests);
      }
      for (MPI_Request& request : requests) {
        ranks_.check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
      }
      if (from == plan.receives.end()) continue;
      const auto* packed = received_.data<std::byte>();
      for_each_piece(*from, [&](void* piece, std::size_t size) {
        std::memcpy(piece, packed, size);
        packed += size;
      });
    }
  }

 private:
  template <class Transfers>
  static auto of_rank(const Transfers& transfers, int rank) {
    return std::ranges::find(transfers, rank, &Transfers::value_type::rank);
  }

  template <class Transfers, class RowBytes>
  static void grow(Workspace& memory, const Transfers& transfers, const RowBytes& row_bytes) {
    for (const auto& transfer : transfers) {
      const Index bytes = Workspace::size_of(row_count(transfer.rows), row_bytes(transfer));
      if (bytes > memory.size_bytes()) memory = Workspace(bytes);
    }
  }

  template <class Transfer>
  void receive(const Transfer& from, Index row_bytes, std::vector<MPI_Request>& requests) {
    for_each_message(from.rows, row_bytes, [&](Index begin, int count, MPI_Datatype row) {
      requests.push_back(MPI_REQUEST_NULL);
      ranks_.check(MPI_Irecv(received_.data<std::byte>() + begin, count, row, from.rank, tag_,
                             ranks_.mpi(), &requests.back()),
                   "MPI_Irecv");
    });
  }

  template <class Transfer>
  void send(const Transfer& to, Index row_bytes, std::vector<MPI_Request>& requests) {
    for_each_message(to.rows, row_bytes, [&](Index begin, int count, MPI_Datatype row) {
      requests.push_back(MPI_REQUEST_NULL);
      ranks_.check(MPI_Isend(sent_.data<std::byte>() + begin, count, row, to.rank, tag_,
                             ranks_.mpi(), &requests.back()),
                   "MPI_Isend");
    });
  }

  /// Calls f(first byte of a message, its number of rows, the type of a row).
  template <class F>
  void for_each_message(const std::vector<Range>& ranges, Index row_bytes, const F& f) const {
    const detail::MpiType row = detail::MpiType::row(ranks_, row_bytes);
    const Index rows = row_count(ranges);
    for (Index n = 0; n < rows; n += most_) {
      f(n * row_bytes, static_cast<int>((std::min)(most_, rows - n)), row.get());
    }
  }

  const Communicator& ranks_;
  int tag_;
  Index most_;
  Workspace sent_;      // the largest transfer to another rank
  Workspace received_;  // and from one
};

}  // namespace distributed

FOVEA_NAMESPACE_END
