// SPDX-License-Identifier: MIT
/// \file
/// Moves rows between the windows of ranks while something else is computed.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/exchange_plan.hpp"
#include "fovea/distributed/row_window.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// An MPI type that is freed with the object.
class MpiType {
 public:
  MpiType(const MpiType&) = delete;
  MpiType& operator=(const MpiType&) = delete;
  MpiType(MpiType&& other) noexcept : type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}
  MpiType& operator=(MpiType&&) = delete;
  ~MpiType() {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
  }

  /// One row of a window.
  static MpiType row(const Communicator& ranks, Index bytes) {
    // A row beyond 2^31 bytes is made of pieces.
    constexpr Index most = Index{1} << 30;
    if (bytes <= most) {
      MPI_Datatype type = MPI_DATATYPE_NULL;
      ranks.check(MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type),
                  "MPI_Type_contiguous");
      return committed(ranks, type);
    }
    Index piece = most;
    while (bytes % piece != 0) --piece;
    const MpiType pieces = row(ranks, piece);
    MPI_Datatype type = MPI_DATATYPE_NULL;
    ranks.check(MPI_Type_contiguous(static_cast<int>(bytes / piece), pieces.get(), &type),
                "MPI_Type_contiguous");
    return committed(ranks, type);
  }

  /// Some rows of a window of `batch` sequences of `rows` rows, from the window's begin on.
  static MpiType rows(const Communicator& ranks, const MpiType& row, Index row_bytes,
                      const std::vector<Range>& ranges, Index batch, Index rows) {
    constexpr Index most = (std::numeric_limits<int>::max)();
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    for (Index b = 0; b < batch; ++b) {
      for (const Range& range : ranges) {
        for (Index n = range.begin; n < range.end; n += most) {
          lengths.push_back(static_cast<int>((std::min)(most, range.end - n)));
          places.push_back(static_cast<MPI_Aint>((b * rows + n) * row_bytes));
        }
      }
    }
    MPI_Datatype type = MPI_DATATYPE_NULL;
    ranks.check(MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(),
                                         places.data(), row.get(), &type),
                "MPI_Type_create_hindexed");
    return committed(ranks, type);
  }

  MPI_Datatype get() const { return type_; }

 private:
  explicit MpiType(MPI_Datatype type) : type_(type) {}

  static MpiType committed(const Communicator& ranks, MPI_Datatype type) {
    MpiType made(type);
    ranks.check(MPI_Type_commit(&made.type_), "MPI_Type_commit");
    return made;
  }

  MPI_Datatype type_;
};

}  // namespace detail

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
      sent_ += batch * stages[s].rows_sent() * window.row_bytes();
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// The bytes that this rank sends in all stages.
  Index bytes_sent() const { return sent_; }

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

  void wait(std::vector<Message>& messages) const {
    for (Message& m : messages) ranks_.check(MPI_Wait(&m.request, MPI_STATUS_IGNORE), "MPI_Wait");
  }

  const Communicator& ranks_;
  const RowWindow& window_;
  detail::MpiType row_;
  std::vector<Stage> stages_;
  Index sent_ = 0;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
