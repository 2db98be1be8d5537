// SPDX-License-Identifier: MIT
/// \file
/// Prefetching by threads that wait for work.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// What waiting threads prefetch. The steps of a decoder read the same matrices in the same order,
/// so each matrix is stored together with the one that followed it, and the beginning of that is
/// prefetched when the matrix is read again. Otherwise memory would idle whenever one thread
/// computes what is not shared. (Measured with a model of 30 layers on two threads, whose weights
/// are read from memory: about 1.05 times as fast.)
///
/// The matrices may be freed by then: prefetches of any address have no effect on results.
class ReadAhead {
 public:
  /// Half of a second-level cache of 1 MB; waiting is mostly too short for more.
  static constexpr std::uintptr_t kMostBytes = 1 << 19;
  /// Bytes prefetched between two checks for work.
  static constexpr std::uintptr_t kPiece = 2048;

  /// Announces that a matrix is about to be read. Matrices that never recur only cost this call.
  void note(const void* data, Index bytes) noexcept {
    const Region read{reinterpret_cast<std::uintptr_t>(data), static_cast<std::uintptr_t>(bytes)};
    // Does not wait: in a child of fork() the mutex may stay locked.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    entry_of(last_) = {last_, read};
    last_ = read.begin;
    const Entry& known = entry_of(last_);
    const Region next = known.matrix == last_ ? known.next : Region{};
    at_.store(next.begin, std::memory_order_relaxed);
    end_.store(next.begin + (std::min)(next.bytes, kMostBytes), std::memory_order_relaxed);
  }

  /// Prefetches some more lines, and returns whether any were left.
  bool advance() noexcept {
    std::uintptr_t at = at_.load(std::memory_order_relaxed);
    if (at >= end_.load(std::memory_order_relaxed)) return false;
    for (std::uintptr_t line = at; line < at + kPiece; line += 64) prefetch(line);
    // Fails if another thread prefetched these lines, or if other ones are next by now.
    at_.compare_exchange_strong(at, at + kPiece, std::memory_order_relaxed);
    return true;
  }

 private:
  struct Region {
    std::uintptr_t begin = 0;
    std::uintptr_t bytes = 0;
  };
  struct Entry {
    std::uintptr_t matrix = 0;
    Region next;  // what was read after it
  };

  /// The number of matrices of a step that are remembered, if none collide.
  static constexpr std::size_t kEntries = 1024;

  static void prefetch([[maybe_unused]] std::uintptr_t line) noexcept {
#if defined(__GNUC__)
    __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
#endif
  }

  Entry& entry_of(std::uintptr_t matrix) noexcept {
    const std::uint64_t mixed = std::uint64_t{matrix} * 0x9E3779B97F4A7C15u;
    return entries_[static_cast<std::size_t>(mixed >> 32) % kEntries];
  }

  std::mutex mutex_;
  std::array<Entry, kEntries> entries_;
  std::uintptr_t last_ = 0;
  std::atomic<std::uintptr_t> at_{0};
  std::atomic<std::uintptr_t> end_{0};
};

}  // namespace detail

FOVEA_NAMESPACE_END
