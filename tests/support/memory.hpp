// SPDX-License-Identifier: MIT
/// \file
/// Counts heap memory, lets allocations fail, and sets fences around them, by replacing operator
/// new and delete, which memory.cpp does: whoever includes this links fovea_test_heap.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>

namespace fovea_test {

/// Bytes in use, their peak since `reset`, and the number of allocations.
struct HeapCount {
  std::atomic<std::ptrdiff_t> bytes{0};
  std::atomic<std::ptrdiff_t> peak{0};
  std::atomic<std::ptrdiff_t> allocations{0};

  void add(std::size_t size) {
    ++allocations;
    const std::ptrdiff_t now = bytes += static_cast<std::ptrdiff_t>(size);
    std::ptrdiff_t seen = peak;
    while (seen < now && !peak.compare_exchange_weak(seen, now)) {
    }
  }

  /// From here on the peak counts from the bytes in use now, which it returns.
  std::ptrdiff_t reset() {
    allocations = 0;
    return peak = bytes.load();
  }
};

HeapCount& heap();

/// While it lives, the n-th allocation fails, or all from the n-th on. \pre only one lives
class FailingHeap {
 public:
  FailingHeap(std::ptrdiff_t nth, bool forever);
  FailingHeap(const FailingHeap&) = delete;
  FailingHeap& operator=(const FailingHeap&) = delete;
  ~FailingHeap() { left() = kNever; }

  /// Whether any has failed.
  static bool has_struck() { return left() <= 0; }

  /// Whether this allocation shall fail.
  static bool strikes() {
    if (left() == kNever) return false;
    const std::ptrdiff_t now = --left();
    return now == 0 || (now < 0 && is_forever());
  }

 private:
  static constexpr std::ptrdiff_t kNever = std::numeric_limits<std::ptrdiff_t>::max();

  /// Allocations up to the one that fails.
  static std::atomic<std::ptrdiff_t>& left() {
    static std::atomic<std::ptrdiff_t> count{kNever};
    return count;
  }
  static std::atomic<bool>& is_forever() {
    static std::atomic<bool> forever{false};
    return forever;
  }
};

}  // namespace fovea_test
