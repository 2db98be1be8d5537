// SPDX-License-Identifier: MIT
/// \file
/// Caches of data shared by many calls: FFTW plans, and tables of roots of unity.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fovea/spectral/fft_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// An LRU cache of `capacity` values. An evicted value lives as long as its shared_ptr is held.
/// Thread-safe; one value is created at a time.
template <class Key, class Value>
class SharedCache {
 public:
  /// An empty cache of up to `capacity` values.
  explicit SharedCache(std::size_t capacity) : capacity_(capacity) {}

  /// The value of a key. If missing, `make()` creates it, as a shared_ptr.
  template <class Make>
  std::shared_ptr<const Value> find_or_make(const Key& key, Make&& make) {
    // Declared before the lock, so as to outlive it: destroying a value may take another lock.
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

  /// The number of cached values.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

  /// Evicts all values.
  void clear() {
    std::vector<std::pair<Key, std::shared_ptr<const Value>>> dropped;
    const std::lock_guard lock(mutex_);
    dropped.swap(entries_);
  }

 private:
  std::size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<std::pair<Key, std::shared_ptr<const Value>>> entries_;  // most recently used first
};

/// The capacity of the caches of plans, per scalar type, and of root tables.
inline constexpr std::size_t kCachedPlans = 128;

/// The cache of plans for T. It is never destroyed, so that destructors may use it at exit.
template <class T>
SharedCache<FftShape, FftPlan<T>>& fft_plans() {
  static auto& cache = *new SharedCache<FftShape, FftPlan<T>>(kCachedPlans);
  return cache;
}

/// The plan of a shape, created if missing. \throws as FftPlan
template <class T>
std::shared_ptr<const FftPlan<T>> fft_plan(const FftShape& shape) {
  return fft_plans<T>().find_or_make(shape,
                                     [&] { return std::make_shared<const FftPlan<T>>(shape); });
}

FOVEA_NAMESPACE_END
