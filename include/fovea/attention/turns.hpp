// SPDX-License-Identifier: MIT
/// \file
/// Tasks that add to the same place one after the other, in an order that no schedule changes.
#pragma once

#include <atomic>
#include <memory>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Places where tasks add in turn. A task may wait only for tasks of lower numbers: those have been
/// taken before it, so the lowest one at work never waits.
class Turns {
 public:
  explicit Turns(Index places)
      : places_(places),
        next_(places == 0 ? nullptr : std::make_unique<std::atomic<int>[]>(as_size(places))) {}

  /// Nobody has had a turn. \pre nobody is at work
  void restart() {
    for (Index place = 0; place < places_; ++place) {
      next_[as_size(place)].store(0, std::memory_order_relaxed);
    }
  }

  /// How many have had their turn. \pre nobody is at work
  Index taken(Index place) const { return next_[as_size(place)].load(std::memory_order_relaxed); }

  /// Calls f when `turn` others have had their turn at the place.
  template <class F>
  void take(Index place, Index turn, F&& f) {
    std::atomic<int>& next = next_[as_size(place)];
    const int mine = static_cast<int>(turn);
    for (int now = next.load(std::memory_order_acquire); now != mine;
         now = next.load(std::memory_order_acquire)) {
      next.wait(now, std::memory_order_acquire);
    }
    f();
    next.store(mine + 1, std::memory_order_release);
    next.notify_all();
  }

 private:
  static std::size_t as_size(Index i) { return static_cast<std::size_t>(i); }

  Index places_;
  std::unique_ptr<std::atomic<int>[]> next_;
};

}  // namespace detail

FOVEA_NAMESPACE_END
