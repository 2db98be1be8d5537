// SPDX-License-Identifier: MIT
/// \file
/// The ranks of a call: a private MPI communicator with errors as exceptions.
#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "fovea/core/error.hpp"
#include "fovea/distributed/comm_stats.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// MPI's text for an error code.
inline std::string mpi_text(int code) {
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return "an unknown error";
  text.resize(static_cast<std::size_t>(length));
  return text;
}

/// \throws std::runtime_error if MPI reports that `call` failed on this rank
inline void check_mpi(int code, const char* call, int rank) {
  if (code == MPI_SUCCESS) return;
  FOVEA_THROW(std::runtime_error(std::string(call) + " failed on rank " + std::to_string(rank) +
                                 ": " + mpi_text(code)));
}

}  // namespace detail

/// A group of ranks that make the same calls in the same order. It uses a private communicator, so
/// that its messages never match the user's. Only the thread that calls an operator calls MPI:
/// MPI_THREAD_FUNNELED is enough.
class Communicator {
 public:
  /// Duplicates a communicator (collective).
  /// \throws std::invalid_argument if MPI is not initialised or is finalised already, or if
  /// the communicator is null or has a remote group; std::runtime_error if MPI fails
  explicit Communicator(MPI_Comm ranks) {
    check_ready();
    if (ranks == MPI_COMM_NULL) refuse("Communicator", "the communicator is MPI_COMM_NULL");
    int is_inter = 0;
    detail::check_mpi(MPI_Comm_test_inter(ranks, &is_inter), "MPI_Comm_test_inter", 0);
    if (is_inter != 0) {
      refuse("Communicator", "the communicator is an intercommunicator",
             "expected an intracommunicator");
    }
    detail::check_mpi(MPI_Comm_dup(ranks, &ranks_), "MPI_Comm_dup", 0);
    detail::check_mpi(MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
                      0);
    check(MPI_Comm_rank(ranks_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(ranks_, &size_), "MPI_Comm_size");
  }

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Moves the communicator; the source can then only be destroyed.
  Communicator(Communicator&& other) noexcept
      : ranks_(std::exchange(other.ranks_, MPI_COMM_NULL)),
        rank_(other.rank_),
        size_(other.size_),
        comm_stats_(other.comm_stats_) {}
  Communicator& operator=(Communicator&&) = delete;

  /// Frees the communicator (collective), unless MPI is finalised.
  ~Communicator() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (ranks_ != MPI_COMM_NULL && finalised == 0) MPI_Comm_free(&ranks_);
  }

  /// The number of this rank, from 0 on.
  int rank() const { return rank_; }
  /// The number of ranks.
  int size() const { return size_; }
  /// The MPI communicator, which returns errors.
  MPI_Comm mpi() const { return ranks_; }

  /// \throws std::runtime_error with the name of the call, the rank and MPI's reason
  void check(int code, const char* call) const { detail::check_mpi(code, call, rank_); }

  /// Counts bytes that this rank sends to others.
  void add_sent(Index bytes) const { comm_stats_.bytes_sent += bytes; }
  /// Calls f, in which this rank waits for messages, and counts the time.
  template <class F>
  void wait(F&& f) const {
    const double begun = MPI_Wtime();
    f();
    comm_stats_.seconds_waited += MPI_Wtime() - begun;
  }
  /// This rank's communication statistics of all calls so far.
  const CommStats& comm_stats() const { return comm_stats_; }

 private:
  static void check_ready() {
    int initialised = 0;
    int finalised = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (initialised == 0) refuse("Communicator", "MPI is not initialised", "call MPI_Init first");
    if (finalised != 0) refuse("Communicator", "MPI is finalised", "call MPI_Finalize later");
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  mutable CommStats comm_stats_;  // counted by the thread that calls MPI
};

}  // namespace distributed

FOVEA_NAMESPACE_END
