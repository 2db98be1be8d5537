// SPDX-License-Identifier: MIT
/// \file
/// One rank's part of a pass over a sharded sequence.
#pragma once

#include <cstdint>
#include <exception>

#include "fovea/core/executor_ref.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A pass, or a part of one, that all ranks run together. Its memory is allocated.
class RankPass {
 public:
  RankPass() = default;
  RankPass(const RankPass&) = delete;
  RankPass& operator=(const RankPass&) = delete;
  virtual ~RankPass() = default;

  /// Sends, receives and computes. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  virtual std::exception_ptr run(const ExecutorRef& executor) = 0;
  /// A number that differs between ranks if their messages would not match.
  virtual std::uint64_t plan_number() const { return 0; }
};

}  // namespace distributed

FOVEA_NAMESPACE_END
