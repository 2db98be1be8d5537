// SPDX-License-Identifier: MIT
/// \file
/// Communication statistics of a distributed call.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// This rank's communication statistics of one call.
struct CommStats {
  Index bytes_sent = 0;       ///< to other ranks, excluding collective checks
  double seconds_waited = 0;  ///< time spent waiting for messages, without computing

  /// The sum of both.
  friend CommStats operator+(const CommStats& a, const CommStats& b) {
    return {a.bytes_sent + b.bytes_sent, a.seconds_waited + b.seconds_waited};
  }
  /// What a has in addition to b.
  friend CommStats operator-(const CommStats& a, const CommStats& b) {
    return {a.bytes_sent - b.bytes_sent, a.seconds_waited - b.seconds_waited};
  }
};

}  // namespace distributed

FOVEA_NAMESPACE_END
