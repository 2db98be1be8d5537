// SPDX-License-Identifier: MIT
/// \file
/// Counts heap memory, lets allocations fail, and sets fences around them, by replacing operator
/// new and delete: included by one test file of an executable, at most.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

#include "support/fences.hpp"

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

inline HeapCount& heap() {
  static HeapCount count;
  return count;
}

/// While it lives, the n-th allocation fails, or all from the n-th on. \pre only one lives
class FailingHeap {
 public:
  FailingHeap(std::ptrdiff_t nth, bool forever) {
    is_forever() = forever;
    left() = nth;
  }
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

namespace detail {

// The size stands before each piece, at the piece's own alignment. Neither function is inlined: a
// compiler that sees free() beside a call of operator new takes the two for a mismatch.
[[gnu::noinline]] inline void* allocate(std::size_t size, std::size_t alignment) {
  if (FailingHeap::strikes()) throw std::bad_alloc();
  if (FencedHeap::lives()) {
    // Without more alignment than the size tells: a float behind the last one would be missed.
    const std::size_t natural = size & (~size + 1);
    const std::size_t least = std::clamp<std::size_t>(natural, 1, alignof(std::max_align_t));
    void* const data = FencedHeap::allocate(size, alignment == 1 ? least : alignment);
    heap().add(size);
    return data;
  }
  if (alignment < alignof(std::max_align_t)) alignment = alignof(std::max_align_t);
  const std::size_t total = (size + 2 * alignment - 1) / alignment * alignment;
  auto* const base = static_cast<std::byte*>(std::aligned_alloc(alignment, total));
  if (base == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(base) = size;
  heap().add(size);
  return base + alignment;
}

[[gnu::noinline]] inline void release(void* data, std::size_t alignment) {
  if (data == nullptr) return;
  if (FencedHeap::has(data)) {
    heap().bytes -= static_cast<std::ptrdiff_t>(FencedHeap::release(data));
    return;
  }
  if (alignment < alignof(std::max_align_t)) alignment = alignof(std::max_align_t);
  std::byte* const base = static_cast<std::byte*>(data) - alignment;
  heap().bytes -= static_cast<std::ptrdiff_t>(*reinterpret_cast<std::size_t*>(base));
  std::free(base);
}

}  // namespace detail
}  // namespace fovea_test

void* operator new(std::size_t size) { return fovea_test::detail::allocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return fovea_test::detail::allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { fovea_test::detail::release(data, 1); }
void operator delete(void* data, std::size_t) noexcept { fovea_test::detail::release(data, 1); }
void operator delete(void* data, std::align_val_t alignment) noexcept {
  fovea_test::detail::release(data, static_cast<std::size_t>(alignment));
}
void operator delete(void* data, std::size_t, std::align_val_t alignment) noexcept {
  fovea_test::detail::release(data, static_cast<std::size_t>(alignment));
}
