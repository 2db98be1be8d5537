// SPDX-License-Identifier: MIT
/// \file
/// Moves rows between the windows of ranks while something else is computed.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/exchange_plan.hpp"
#include "fovea/distributed/mpi_type.hpp"
#include "fovea/distributed/packed_rows.hpp"
#include "fovea/distributed/row_tensors.hpp"
#include "fovea/distributed/traffic.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The messages of one call between the windows of all ranks, in stages: what belongs to a stage is
/// received before it is computed, and asked for one stage earlier. Long pieces are sent from where
/// they are; many short ones are copied into one. Every rank must begin and end every stage,
/// whatever happens in between.
class Exchange {
 public:
  /// \param tensors in whose rows messages are sent and received; they must outlive this object
  /// \param stages what this rank sends and receives in each stage; other ranks have as many
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class T>
  Exchange(const Communicator& ranks, const RowTensors<T>& tensors,
           const std::vector<ExchangePlan>& stages)
      : ranks_(ranks), data_(tensors.window().data()) {
    for (const RowsInWindow& place : tensors.places()) {
      types_.push_back(detail::MpiType::row(ranks, place.row_bytes));
    }
    const Index row_bytes = PackedRows::bytes_of_row(tensors.places());
    types_.push_back(detail::MpiType::row(ranks, row_bytes));
    stages_.resize(stages.size());
    for (std::size_t s = 0; s < stages.size(); ++s) {
      prepare(stages[s].sends, tensors.places(), stages_[s].sends, stages_[s].packed_sends);
      prepare(stages[s].receives, tensors.places(), stages_[s].receives,
              stages_[s].packed_receives);
      traffic_.bytes_sent += stages[s].rows_sent() * row_bytes;
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// What this rank sends in all stages, and how long it has waited for messages so far.
  const Traffic& traffic() const { return traffic_; }

  /// Begins to send what all stages need of this rank, and to receive what stage 0 needs.
  void begin() {
    for (Stage& stage : stages_) {
      for (PackedRows& rows : stage.packed_sends) rows.pack(data_);
      for (Message& m : stage.sends) {
        ranks_.check(MPI_Isend(m.data, m.count, m.type, m.rank, kTag, ranks_.mpi(), &m.request),
                     "MPI_Isend");
      }
    }
    receive(0);
  }

  /// Waits until everything that a stage needs is there, and begins to receive for the next.
  void begin_stage(std::size_t stage) {
    receive(stage + 1);
    wait(stages_[stage].receives);
    for (PackedRows& rows : stages_[stage].packed_receives) rows.unpack(data_);
  }

  /// Lets MPI work on what is under way, if it has not just done so: looking for messages may give
  /// the core away. Only the thread that begins and ends stages may call it.
  void progress() const {
    if (ranks_.size() == 1) return;
    const double now = MPI_Wtime();
    if (now < next_look_) return;
    next_look_ = now + kSecondsBetweenLooks;
    int is_there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, kTag, ranks_.mpi(), &is_there, MPI_STATUS_IGNORE);
  }

  /// Waits until everything is sent.
  void end() {
    for (Stage& stage : stages_) wait(stage.sends);
  }

  /// Makes an exchange of one stage, while nothing is computed.
  void run() {
    begin();
    begin_stage(0);
    end();
  }

 private:
  static constexpr int kTag = 1;
  static constexpr double kSecondsBetweenLooks = 50e-6;

  /// A transfer of more pieces than this, which are shorter on average than that, is packed: MPI
  /// takes longer over each of them than a copy.
  static constexpr Index kMostPieces = 256;
  static constexpr Index kLongPiece = Index{1} << 16;

  struct Message {
    int rank;
    std::byte* data;
    int count;
    MPI_Datatype type;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Stage {
    std::vector<Message> sends;
    std::vector<Message> receives;
    std::vector<PackedRows> packed_sends;
    std::vector<PackedRows> packed_receives;
  };

  void prepare(const std::vector<Transfer>& transfers, const std::vector<RowsInWindow>& places,
               std::vector<Message>& messages, std::vector<PackedRows>& packed) const {
    Index heads = 0;
    for (const RowsInWindow& place : places) heads += place.heads;
    const Index row_bytes = PackedRows::bytes_of_row(places);
    for (const Transfer& transfer : transfers) {
      const Index pieces = heads * static_cast<Index>(transfer.rows.size());
      const Index rows = row_count(transfer.rows);
      if (pieces > kMostPieces && rows * row_bytes < pieces * kLongPiece) {
        packed.emplace_back(places, transfer.rows);
        add(transfer.rank, packed.back().data(), rows, row_bytes, types_.back().get(), messages);
      } else {
        add_pieces(transfer, places, messages);
      }
    }
  }

  void add_pieces(const Transfer& transfer, const std::vector<RowsInWindow>& places,
                  std::vector<Message>& messages) const {
    for (std::size_t t = 0; t < places.size(); ++t) {
      for (Index head = 0; head < places[t].heads; ++head) {
        for (const Range& range : transfer.rows) {
          add(transfer.rank, data_ + places[t].bytes(head, range).begin, range.end - range.begin,
              places[t].row_bytes, types_[t].get(), messages);
        }
      }
    }
  }

  /// Adds the messages of `rows` neighbours.
  static void add(int rank, std::byte* data, Index rows, Index row_bytes, MPI_Datatype type,
                  std::vector<Message>& messages) {
    constexpr Index most = (std::numeric_limits<int>::max)();
    for (Index n = 0; n < rows; n += most) {
      messages.push_back(
          {rank, data + n * row_bytes, static_cast<int>((std::min)(most, rows - n)), type});
    }
  }

  void receive(std::size_t stage) {
    if (stage >= stages_.size()) return;
    for (Message& m : stages_[stage].receives) {
      ranks_.check(MPI_Irecv(m.data, m.count, m.type, m.rank, kTag, ranks_.mpi(), &m.request),
                   "MPI_Irecv");
    }
  }

  void wait(std::vector<Message>& messages) {
    detail::add_waiting(traffic_.seconds_waited, [&] {
      for (Message& m : messages) {
        ranks_.check(MPI_Wait(&m.request, MPI_STATUS_IGNORE), "MPI_Wait");
      }
    });
  }

  const Communicator& ranks_;
  std::byte* data_;
  std::vector<detail::MpiType> types_;  // a row of each tensor, and of all together
  std::vector<Stage> stages_;
  Traffic traffic_;
  mutable double next_look_ = 0;  // when progress looks again, by MPI_Wtime
};

/// Moves rows at once, while nothing else is computed. All ranks call it together.
/// \param tensors in whose rows messages are sent and received   \returns the messages of this rank
/// \throws std::bad_alloc, and std::runtime_error if MPI fails
template <class T>
Traffic exchange_rows(const Communicator& ranks, const RowTensors<T>& tensors,
                      const ExchangePlan& plan) {
  tensors.expect(plan.with_received({}, tensors.places().front().rows));
  Exchange messages(ranks, tensors, {plan});
  messages.run();
  return messages.traffic();
}

}  // namespace distributed

FOVEA_NAMESPACE_END
