// SPDX-License-Identifier: MIT
/// \file
/// What a call over ranks has sent, and how long it waited.
#pragma once

#include "fovea/distributed/communicator.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The messages of this rank in one call.
struct Traffic {
  Index bytes_sent = 0;       ///< to other ranks, without those of agreements
  double seconds_waited = 0;  ///< time in which nothing could be computed, for want of messages

  /// The messages of both.
  friend Traffic operator+(const Traffic& a, const Traffic& b) {
    return {a.bytes_sent + b.bytes_sent, a.seconds_waited + b.seconds_waited};
  }
};

namespace detail {

/// Adds the seconds that f takes.
template <class F>
void add_waiting(double& seconds, F&& f) {
  const double begun = MPI_Wtime();
  f();
  seconds += MPI_Wtime() - begun;
}

}  // namespace detail

}  // namespace distributed

FOVEA_NAMESPACE_END
