// SPDX-License-Identifier: MIT
/// \file
/// Tasks that add to the same place in a fixed order, whatever the schedule.
#pragma once

#include <atomic>
#include <memory>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Places where tasks add in turn. A task may wait only for tasks with lower numbers. Those were
/// started before it, so the lowest running task never waits. A task that throws must call `stop`,
/// or later tasks would wait forever.
class OrderedSections {
 public:
  explicit OrderedSections(Index places)
      : places_(places),
        next_(places == 0 ? nullptr : std::make_unique<std::atomic<int>[]>(as_size(places))) {}

  /// Resets: no task has had its turn at any place.
  /// \pre no task is running
  void restart() {
    for (Index place = 0; place < places_; ++place) {
      next_[as_size(place)].store(0, std::memory_order_relaxed);
    }
  }

  /// The number of tasks that have had their turn at the place.
  /// \pre no task is running
  Index taken(Index place) const { return next_[as_size(place)].load(std::memory_order_relaxed); }

  /// Waits until `turn` other tasks have had their turn at the place, then calls f, unless stopped.
  template <class F>
  void take(Index place, Index turn, F&& f) {
    std::atomic<int>& next = next_[as_size(place)];
    int mine = static_cast<int>(turn);
    for (int now = next.load(std::memory_order_acquire); now != mine;
         now = next.load(std::memory_order_acquire)) {
      if (now == kStopped) return;
      next.wait(now, std::memory_order_acquire);
    }
    f();
    // If stopped meanwhile, it must stay stopped: no task may wait here again.
    next.compare_exchange_strong(mine, mine + 1, std::memory_order_release,
                                 std::memory_order_relaxed);
    next.notify_all();
  }

  /// Ends all waiting, now and later.
  void stop() noexcept {
    for (Index place = 0; place < places_; ++place) {
      next_[as_size(place)].store(kStopped, std::memory_order_release);
      next_[as_size(place)].notify_all();
    }
  }

 private:
  static constexpr int kStopped = -1;

  static std::size_t as_size(Index i) { return static_cast<std::size_t>(i); }

  Index places_;
  std::unique_ptr<std::atomic<int>[]> next_;
};

}  // namespace detail

FOVEA_NAMESPACE_END
