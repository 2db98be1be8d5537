// SPDX-License-Identifier: MIT
/// \file
/// Caches of what is made once and used by many calls: plans of FFTW, and tables of roots of unity.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fovea/spectral/fft_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// Values by key, of which the `capacity` used last are kept. A value that is dropped stays alive
/// as long as somebody holds its shared_ptr. It is safe in threads: one value is made at a time.
template <class Key, class Value>
class SharedCache {
 public:
  /// An empty cache that keeps up to `capacity` values.
  explicit SharedCache(std::size_t capacity) : capacity_(capacity) {}

  /// The value of a key. If there is none yet, `make()` makes it, as a shared_ptr.
  template <class Make>
  std::shared_ptr<const Value> find_or_make(const Key& key, Make&& make) {
    // This is declared before the lock and so outlives it: to destroy a value may take another
    // lock.
    std::shared_ptr<const Value> dropped;
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    if (found != entries_.end()) {
      std::rotate(entries_.begin(), found, found + 1);
      return entries_.front().second;
    }
    std::shared_ptr<const Value> value = make();
    entries_.reserve(capacity_);
    if (entries_.size() == capacity_) {
      dropped = std::move(entries_.back().second);
      entries_.pop_back();
    }
    entries_.emplace(entries_.begin(), key, value);
    return value;
  }

  /// How many values are kept.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

  /// Drops all values.
  void clear() {
    std::vector<std::pair<Key, std::shared_ptr<const Value>>> dropped;
    const std::lock_guard lock(mutex_);
    dropped.swap(entries_);
  }

 private:
  std::size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<std::pair<Key, std::shared_ptr<const Value>>> entries_;  // last used first
};

/// How many plans are kept for each scalar type, and how many tables of roots.
inline constexpr std::size_t kCachedPlans = 128;

/// The cache of plans for T. It is never destroyed, so that a call may come from a destructor at
/// exit.
template <class T>
SharedCache<FftShape, FftPlan<T>>& fft_plans() {
  static auto& cache = *new SharedCache<FftShape, FftPlan<T>>(kCachedPlans);
  return cache;
}

/// The plan of a shape, which is made if there is none yet. \throws as FftPlan
template <class T>
std::shared_ptr<const FftPlan<T>> fft_plan(const FftShape& shape) {
  return fft_plans<T>().find_or_make(shape,
                                     [&] { return std::make_shared<const FftPlan<T>>(shape); });
}

FOVEA_NAMESPACE_END
