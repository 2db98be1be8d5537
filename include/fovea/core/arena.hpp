// SPDX-License-Identifier: MIT
/// \file
/// Caller-owned scratch memory: calls on `arena.on(executor)` use it instead of allocating.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "fovea/core/config.hpp"
#include "fovea/core/error.hpp"
#include "fovea/core/executor.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

template <class E>
class ArenaExecutor;

/// Scratch memory for operator calls, one call at a time.
/// `op.workspace_bytes<T>(shape, executor.concurrency())` bytes are enough for `op.forward` and
/// `op.select`, and `op.backward_workspace_bytes` for `op.backward`; one arena of the largest size
/// serves all of them. What a call needs follows from its shape and from which tensors it is given,
/// never from their values. Packed sequences may need more than the same rows as one sequence,
/// because non-causal linear attention and FSAT keep data per sequence; the error states how much
/// the call needs. Decoders keep most of their scratch themselves: a step takes no more from an
/// arena than `forward` with its queries and all tokens so far. Small lists are still allocated:
/// tasks, plans (also the keys of few queries, see SplitKvForward), and some bytes for each query
/// block and head of a backward pass. So is what outlives the call. Any thread may use an arena,
/// but only one call at a time; a concurrent call is refused. An arena must outlive the executors
/// made from it, and cannot be moved.
class Arena {
 public:
  /// Allocates the memory and kMostPieces cache lines more, since each piece of a call starts at a
  /// cache line.
  /// \throws std::invalid_argument if size_bytes is negative; std::bad_alloc
  explicit Arena(Index size_bytes)
      : size_bytes_(checked(size_bytes)), memory_(room_for(size_bytes)) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The size given to the constructor, in bytes.
  Index size_bytes() const { return size_bytes_; }

  /// An executor that runs calls where `executor` does (by default in the calling thread);
  /// operators take their scratch from this arena. `executor` must outlive the result unless it is
  /// a temporary. An operator that finds the arena in use or too small throws std::invalid_argument
  /// before anything is written.
  template <class X = Serial>
  auto on(X&& executor = {}) {
    if constexpr (std::is_lvalue_reference_v<X> || !Executor<X>) {
      return ArenaExecutor<decltype(as_executor(executor))>(*this, as_executor(executor));
    } else {
      return ArenaExecutor<X>(*this, std::forward<X>(executor));
    }
  }

 private:
  friend class ArenaLease;

  static constexpr Index kMostPieces = 32;
  static constexpr Index kRoom = kMostPieces * Index{kWorkspaceAlignment};

  static Index checked(Index size_bytes) {
    if (size_bytes < 0) refuse("Arena", "size_bytes", std::to_string(size_bytes), "at least 0");
    return size_bytes;
  }
  static Index room_for(Index size_bytes) {
    if (size_bytes > (std::numeric_limits<Index>::max)() - kRoom) {
      FOVEA_THROW(std::bad_array_new_length());
    }
    return size_bytes + kRoom;
  }

  Index size_bytes_;
  Workspace memory_;
  std::atomic<bool> in_use_{false};
};

/// The arena's memory during one call, a ScratchMemory. Pieces are consecutive and are released
/// together.
class ArenaLease {
 public:
  /// \throws std::invalid_argument if the arena is in use
  explicit ArenaLease(Arena& arena) : arena_(arena) {
    if (arena.in_use_.exchange(true, std::memory_order_acquire)) {
      refuse("Arena", "the memory is in use by another call",
             "use one arena for each concurrent call");
    }
  }
  ArenaLease(const ArenaLease&) = delete;
  ArenaLease& operator=(const ArenaLease&) = delete;
  ~ArenaLease() { arena_.in_use_.store(false, std::memory_order_release); }

  /// Takes `count` consecutive pieces of `piece_bytes` bytes each. If they do not fit, it only
  /// counts them, and the result must not be used; require() then throws.
  /// \throws std::bad_alloc as Workspace's constructor does
  Workspace take(Index count, Index piece_bytes) {
    const Index size = Workspace::size_of(count, piece_bytes);
    if (size == 0) return {};
    constexpr Index line = kWorkspaceAlignment;
    if (size > (std::numeric_limits<Index>::max)() - end_ - line) {
      FOVEA_THROW(std::bad_array_new_length());
    }
    const Index begin = end_;
    taken_ += size;
    end_ += (size + line - 1) / line * line;
    std::byte* const bytes = arena_.memory_.data<std::byte>();
    return Workspace::lent(fits() ? bytes + begin : bytes, size);
  }

  /// \throws std::invalid_argument if the arena is too small for what was taken
  void require() const {
    if (fits()) return;
    const Index needed = (std::max)(taken_, end_ - Arena::kRoom);
    refuse("Arena", "size_bytes", std::to_string(arena_.size_bytes_),
           "at least " + std::to_string(needed) + ", which the call needs");
  }

  /// Whether a call takes what its shape may need, even if its values do not: true, so that whether
  /// an arena is large enough never depends on values.
  static constexpr bool is_by_shape() { return true; }

 private:
  bool fits() const { return taken_ <= arena_.size_bytes_ && end_ <= arena_.memory_.size_bytes(); }

  Arena& arena_;
  Index taken_ = 0;  // bytes of all pieces
  Index end_ = 0;    // where the next piece begins
};

/// What Arena::on returns: an Executor that runs calls on another one and provides the arena's
/// memory. It is as cheap to copy as the other executor, and copies share the arena.
/// \tparam E the other executor, or a reference to it
template <class E>
class ArenaExecutor {
  static_assert(!ShardsRows<E>,
                "combine the arena with the executor for sequence_parallel instead");

 public:
  /// \param arena must outlive this object
  /// \param executor must outlive it, too, if E is a reference
  ArenaExecutor(Arena& arena, E&& executor)
      : arena_(&arena), executor_(std::forward<E>(executor)) {}

  /// Whether the other executor's threads are awake.
  bool takes_small_work() const { return fovea::takes_small_work(executor_); }
  /// Keeps the threads of the other executor awake, if it can.
  auto stay_awake() const { return fovea::stay_awake(executor_); }
  /// Tells the other executor that a matrix is about to be read.
  void will_read(const void* data, Index bytes) const { fovea::will_read(executor_, data, bytes); }

  /// The other executor's concurrency.
  Index concurrency() const { return static_cast<Index>(executor_.concurrency()); }
  /// Runs the calls on the other executor.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    executor_.parallel_for(n, f);
  }
  /// The arena's memory, for one call. \throws std::invalid_argument if it is in use
  ArenaLease lease() const { return ArenaLease(*arena_); }

 private:
  Arena* arena_;
  E executor_;
};

FOVEA_NAMESPACE_END
