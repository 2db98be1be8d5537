// SPDX-License-Identifier: MIT
/// \file
/// Exchanges rows between ranks' windows, overlapped with computation. Rows in many short pieces
/// are copied into one message, since a copy is faster than MPI's handling of each piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/messages/exchange_plan.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
#include "fovea/distributed/messages/packed_messages.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The bytes of one row in all heads of all tensors.
inline Index bytes_of_row(const std::vector<RowsInWindow>& places) {
  Index bytes = 0;
  for (const RowsInWindow& place : places) bytes += place.heads * place.row_bytes;
  return bytes;
}

/// Packed transfers between the windows of all ranks, ordered by tensor, head and row.
class PackedExchange {
 public:
  /// \param data the first byte of the window   \param places of its tensors
  PackedExchange(const Communicator& ranks, std::byte* data,
                 const std::vector<RowsInWindow>& places)
      : data_(data), places_(places), row_bytes_(bytes_of_row(places)), messages_(ranks, kTag) {}

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
    messages_.reserve(plan, [&](const Transfer&) { return row_bytes_; });
  }

  /// Exchanges the rows of a plan. Collective. \pre reserve(plan) was called
  /// \throws std::runtime_error if MPI fails
  void run(const ExchangePlan& plan) {
    messages_.run(
        plan, [&](const Transfer&) { return row_bytes_; },
        [&](const Transfer& t, const auto& f) { for_each_piece(t, f); });
  }

 private:
  static constexpr int kTag = 3;

  template <class F>
  void for_each_piece(const Transfer& transfer, const F& f) const {
    for (const RowsInWindow& place : places_) {
      for (Index head = 0; head < place.heads; ++head) {
        for (const Range& range : transfer.rows) {
          const Range bytes = place.bytes(head, range);
          if (bytes.is_empty()) continue;
          f(data_ + bytes.begin, static_cast<std::size_t>(bytes.end - bytes.begin));
        }
      }
    }
  }

  std::byte* data_;
  std::vector<RowsInWindow> places_;
  Index row_bytes_;  // of all heads of all tensors
  PackedMessages messages_;
};

/// The messages of one call between the windows of all ranks, in stages: a stage's rows are
/// received before it is computed, and requested one stage earlier. Sent rows are not copied,
/// except rows in many short pieces, whose exchange is collective: those of stage 0 at once, when
/// all ranks are at the same point; those of a later stage when it begins. Every rank must begin
/// and end every stage, whatever happens in between.
class Exchange {
 public:
  /// \param tensors in whose rows messages are sent and received; they must outlive this object
  /// \param stages what this rank sends and receives in each stage; other ranks have as many
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class T>
  Exchange(const Communicator& ranks, const RowTensors<T>& tensors,
           const std::vector<ExchangePlan>& stages)
      : ranks_(ranks), data_(tensors.window().data()), packed_(ranks, data_, tensors.places()) {
    for (const RowsInWindow& place : tensors.places()) {
      types_.push_back(detail::MpiType::row(ranks, place.row_bytes));
    }
    stages_.resize(stages.size());
    for (std::size_t s = 0; s < stages.size(); ++s) {
      Stage& stage = stages_[s];
      prepare(stages[s].sends, tensors.places(), stage.sends, stage.packed.sends);
      prepare(stages[s].receives, tensors.places(), stage.receives, stage.packed.receives);
      packed_.reserve(stage.packed);
      bytes_ += stages[s].rows_sent() * bytes_of_row(tensors.places());
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Starts sends for all stages, and receives for stage 0.
  void begin() {
    ranks_.add_sent(bytes_);
    for (Stage& stage : stages_) {
      for (Message& m : stage.sends) {
        ranks_.check(MPI_Isend(m.data, m.count, m.type, m.rank, kTag, ranks_.mpi(), &m.request),
                     "MPI_Isend");
      }
    }
    receive(0);
    if (!stages_.empty()) move_packed(0);
  }

  /// Waits for a stage's rows, and starts receives for the next.
  void begin_stage(std::size_t stage) {
    receive(stage + 1);
    wait(stages_[stage].receives);
    if (stage > 0) move_packed(stage);
  }

  /// Lets MPI progress, unless it just did: polling may yield the core. Only the thread that begins
  /// and ends stages may call it.
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

  /// Runs a one-stage exchange without overlap.
  void run() {
    begin();
    begin_stage(0);
    end();
  }

 private:
  static constexpr int kTag = 1;
  static constexpr double kSecondsBetweenLooks = 50e-6;

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
    ExchangePlan packed;
  };

  void prepare(const std::vector<Transfer>& transfers, const std::vector<RowsInWindow>& places,
               std::vector<Message>& messages, std::vector<Transfer>& packed) const {
    for (const Transfer& transfer : transfers) {
      if (packed_.takes(transfer.rows)) {
        packed.push_back(transfer);
      } else {
        add_pieces(transfer, places, messages);
      }
    }
  }

  void add_pieces(const Transfer& transfer, const std::vector<RowsInWindow>& places,
                  std::vector<Message>& messages) const {
    constexpr Index most = (std::numeric_limits<int>::max)();
    for (std::size_t t = 0; t < places.size(); ++t) {
      for (Index head = 0; head < places[t].heads; ++head) {
        for (const Range& range : transfer.rows) {
          for (Index n = range.begin; n < range.end; n += most) {
            messages.push_back({transfer.rank, data_ + places[t].bytes(head, {n, range.end}).begin,
                                static_cast<int>((std::min)(most, range.end - n)),
                                types_[t].get()});
          }
        }
      }
    }
  }

  void move_packed(std::size_t stage) {
    ranks_.wait([&] { packed_.run(stages_[stage].packed); });
  }

  void receive(std::size_t stage) {
    if (stage >= stages_.size()) return;
    for (Message& m : stages_[stage].receives) {
      ranks_.check(MPI_Irecv(m.data, m.count, m.type, m.rank, kTag, ranks_.mpi(), &m.request),
                   "MPI_Irecv");
    }
  }

  void wait(std::vector<Message>& messages) {
    ranks_.wait([&] {
      for (Message& m : messages) {
        ranks_.check(MPI_Wait(&m.request, MPI_STATUS_IGNORE), "MPI_Wait");
      }
    });
  }

  const Communicator& ranks_;
  std::byte* data_;
  std::vector<detail::MpiType> types_;  // a row of each tensor
  PackedExchange packed_;
  std::vector<Stage> stages_;
  Index bytes_ = 0;               // sent in all stages
  mutable double next_look_ = 0;  // when progress polls next, by MPI_Wtime
};

/// Exchanges rows immediately, without overlap. Collective.
/// \param tensors in whose rows messages are sent and received
/// \throws std::bad_alloc, and std::runtime_error if MPI fails
template <class T>
void exchange_rows(const Communicator& ranks, const RowTensors<T>& tensors,
                   const ExchangePlan& plan) {
  tensors.expect(plan.with_received({}, tensors.places().front().rows));
  Exchange(ranks, tensors, {plan}).run();
}

}  // namespace distributed

FOVEA_NAMESPACE_END
