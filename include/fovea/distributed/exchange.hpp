// SPDX-License-Identifier: MIT
/// \file
/// Moves rows between the windows of ranks while something else is computed.
#pragma once

#include <utility>
#include <vector>

#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/exchange_plan.hpp"
#include "fovea/distributed/mpi_type.hpp"
#include "fovea/distributed/row_window.hpp"
#include "fovea/distributed/traffic.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The messages of one call between the windows of all ranks, in stages: what belongs to a stage is
/// received before it is computed, and asked for one stage earlier. Nothing that is sent is copied.
/// Every rank must begin and end every stage, whatever happens in between.
class Exchange {
 public:
  /// \param stages what this rank sends and receives in each stage; other ranks have as many
  /// \param batch the window holds so many sequences   \param rows each of so many rows
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  Exchange(const Communicator& ranks, const RowWindow& window, std::vector<ExchangePlan> stages,
           Index batch, Index rows)
      : ranks_(ranks), window_(window), row_(detail::MpiType::row(ranks, window.row_bytes())) {
    stages_.resize(stages.size());
    for (std::size_t s = 0; s < stages.size(); ++s) {
      prepare(stages[s].sends, batch, rows, stages_[s].sends);
      prepare(stages[s].receives, batch, rows, stages_[s].receives);
      traffic_.bytes_sent += batch * stages[s].rows_sent() * window.row_bytes();
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// What this rank sends in all stages, and how long it has waited for messages so far.
  const Traffic& traffic() const { return traffic_; }

  /// Begins to send what all stages need of this rank, and to receive what stage 0 needs.
  void begin() {
    for (Stage& stage : stages_) {
      for (Message& m : stage.sends) {
        ranks_.check(
            MPI_Isend(window_.row(0), 1, m.type.get(), m.rank, kTag, ranks_.mpi(), &m.request),
            "MPI_Isend");
      }
    }
    receive(0);
  }

  /// Waits until everything that a stage needs is there, and begins to receive for the next.
  void begin_stage(std::size_t stage) {
    receive(stage + 1);
    wait(stages_[stage].receives);
  }

  /// Lets MPI work on what is under way; only the thread that begins and ends stages may call it.
  void progress() const {
    int is_there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, kTag, ranks_.mpi(), &is_there, MPI_STATUS_IGNORE);
  }

  /// Waits until everything is sent.
  void end() {
    for (Stage& stage : stages_) wait(stage.sends);
  }

 private:
  static constexpr int kTag = 1;

  struct Message {
    int rank;
    detail::MpiType type;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Stage {
    std::vector<Message> sends;
    std::vector<Message> receives;
  };

  void prepare(const std::vector<Transfer>& transfers, Index batch, Index rows,
               std::vector<Message>& messages) const {
    for (const Transfer& transfer : transfers) {
      messages.push_back({transfer.rank, detail::MpiType::rows(ranks_, row_, window_.row_bytes(),
                                                               transfer.rows, batch, rows)});
    }
  }

  void receive(std::size_t stage) {
    if (stage >= stages_.size()) return;
    for (Message& m : stages_[stage].receives) {
      ranks_.check(
          MPI_Irecv(window_.row(0), 1, m.type.get(), m.rank, kTag, ranks_.mpi(), &m.request),
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
  const RowWindow& window_;
  detail::MpiType row_;
  std::vector<Stage> stages_;
  Traffic traffic_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
