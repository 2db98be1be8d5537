// SPDX-License-Identifier: MIT
/// \file
/// Scratch memory that a caller keeps: calls on `arena.on(executor)` use it instead of asking the
/// system each time.
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

/// Bytes that one call of an operator after the other uses as scratch memory.
/// `op.workspace_bytes<T>(shape, executor.concurrency())` of them are enough for `op.forward` (and
/// `select`), and `op.backward_workspace_bytes` for `op.backward`; an arena for the largest serves
/// all. What a call needs follows from its shape and the tensors that it is given, never from
/// their numbers. Packed sequences may need more than their rows as one sequence, by what
/// linear attention that is not causal or FSAT keeps of each sequence; a refusal says how much the
/// call needs. Decoders keep most of their scratch themselves: a step takes from an arena no more
/// than `forward` with its queries and all tokens so far.
/// Small lists still come from the system: tasks, plans (also the keys of few queries, see
/// FewQueries), and some bytes for each block of queries and head of a backward pass. So does what
/// outlives the call.
/// Any thread may use an arena, but only one call at a time; another one is refused. It must
/// outlive the executors that are made of it, and cannot be moved.
class Arena {
 public:
  /// Takes the memory, and a little more: kMostPieces cache lines, since the pieces of a call begin
  /// at one each.
  /// \throws std::invalid_argument if size_bytes is negative; std::bad_alloc
  explicit Arena(Index size_bytes)
      : size_bytes_(checked(size_bytes)), memory_(room_for(size_bytes)) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The bytes that it was made for.
  Index size_bytes() const { return size_bytes_; }

  /// An executor that runs calls where `executor` does (by default in the calling thread), which
  /// must outlive it unless it is a temporary; operators take their scratch from this arena. An
  /// operator that finds the arena in use, or too small, throws std::invalid_argument before
  /// anything is written.
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

/// The memory of an arena for the time of one call, a ScratchMemory. Pieces lie one after the
/// other, and are given back together.
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

  /// Takes `count` pieces of `piece_bytes` bytes each, without gaps. If there are not so many left,
  /// it only counts them, and what is returned must not be used: require() says so.
  /// \throws std::bad_alloc as the constructor of Workspace does
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

  /// Whether a call takes what its shape may need, even if its numbers do not: it does, so that
  /// it is not up to the numbers whether an arena is large enough.
  static constexpr bool is_by_shape() { return true; }

 private:
  bool fits() const { return taken_ <= arena_.size_bytes_ && end_ <= arena_.memory_.size_bytes(); }

  Arena& arena_;
  Index taken_ = 0;  // bytes of all pieces
  Index end_ = 0;    // where the next piece begins
};

/// What Arena::on returns: an Executor that runs calls on another one and brings them memory. It is
/// as cheap to copy as that one, and copies share the arena.
/// \tparam E the other executor, or a reference to it
template <class E>
class ArenaExecutor {
  static_assert(!SpreadsRows<E>, "put the arena around the executor that with_rows is given");

 public:
  /// \param arena must outlive this object
  /// \param executor must outlive it, too, if E is a reference
  ArenaExecutor(Arena& arena, E&& executor)
      : arena_(&arena), executor_(std::forward<E>(executor)) {}

  /// Whether the other executor says that its threads are awake.
  bool takes_small_work() const { return fovea::takes_small_work(executor_); }
  /// Keeps the threads of the other executor awake, if it can.
  auto stay_awake() const { return fovea::stay_awake(executor_); }

  /// That of the other executor.
  Index concurrency() const { return static_cast<Index>(executor_.concurrency()); }
  /// Runs the calls on the other executor.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    executor_.parallel_for(n, f);
  }
  /// The memory of the arena, for one call. \throws std::invalid_argument if it is in use
  ArenaLease lease() const { return ArenaLease(*arena_); }

 private:
  Arena* arena_;
  E executor_;
};

FOVEA_NAMESPACE_END
