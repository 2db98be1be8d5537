// SPDX-License-Identifier: MIT
/// \file
/// An operator's scratch memory, taken once before threads start: from the system, or from an arena
/// that is kept across calls (fovea/core/arena.hpp).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "fovea/core/config.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

FOVEA_NAMESPACE_BEGIN

/// The alignment of a Workspace in bytes: a multiple of a cache line and of every vector register.
inline constexpr std::size_t kWorkspaceAlignment = 64;

/// The size in bytes of a large page. A Workspace of at least two of them is aligned to one and,
/// where the system supports it, requests pages of this size. (Measured decoder steps that read
/// their cache from memory took 0.75 to 0.93 of the time with them.)
inline constexpr std::size_t kLargePage = std::size_t{1} << 21;

namespace detail {

/// Requests large pages for the whole ones in some memory, if its size is at least two of them and
/// the system supports it. A hint: if it fails, pages are small.
inline void request_large_pages([[maybe_unused]] void* bytes,
                                [[maybe_unused]] std::size_t size) noexcept {
#if defined(MADV_HUGEPAGE)
  if (size < 2 * kLargePage) return;
  const std::size_t before = reinterpret_cast<std::uintptr_t>(bytes) % kLargePage;
  const std::size_t skipped = before == 0 ? 0 : kLargePage - before;
  madvise(static_cast<std::byte*>(bytes) + skipped, (size - skipped) / kLargePage * kLargePage,
          MADV_HUGEPAGE);
#endif
}

/// Moves some memory to large pages, and what else is in these, if the system can do that (Linux
/// 6.1). For memory that is written once and read often, and that may be too small or too badly
/// aligned for request_large_pages. A hint: if it fails, pages stay small.
inline void collapse_to_large_pages([[maybe_unused]] const void* bytes,
                                    [[maybe_unused]] std::size_t size) noexcept {
#if defined(__linux__)
  constexpr int collapse = 25;  // MADV_COLLAPSE, which older headers do not have
  if (size < kLargePage / 8) return;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(bytes) / kLargePage * kLargePage;
  const std::size_t length = reinterpret_cast<std::uintptr_t>(bytes) + size - begin;
  madvise(reinterpret_cast<void*>(begin), (length + kLargePage - 1) / kLargePage * kLargePage,
          collapse);
#endif
}

}  // namespace detail

/// Uninitialised bytes, owned or borrowed, aligned to kWorkspaceAlignment. If it is empty, data()
/// is null.
class Workspace {
 public:
  Workspace() = default;

  /// \throws std::bad_alloc if size_bytes is negative or there is not enough memory
  explicit Workspace(Index size_bytes) : Workspace(size_bytes, 1) {}

  /// Takes `count` consecutive pieces of `piece_bytes` bytes each.
  /// \throws std::bad_alloc if either is negative, if the product is too large, or if there is not
  /// enough memory
  Workspace(Index count, Index piece_bytes) : size_bytes_(size_of(count, piece_bytes)) {
    if (size_bytes_ == 0) return;
    const auto size = static_cast<std::size_t>(size_bytes_);
    const std::size_t alignment = size < 2 * kLargePage ? kWorkspaceAlignment : kLargePage;
    auto* const bytes = static_cast<std::byte*>(::operator new (size, std::align_val_t{alignment}));
    bytes_ = std::unique_ptr<std::byte, Free>(bytes, Free{alignment});
    detail::request_large_pages(bytes, size);
  }

  /// Borrows bytes, which must outlive it.
  /// \param bytes aligned to kWorkspaceAlignment
  static Workspace lent(std::byte* bytes, Index size_bytes) noexcept {
    Workspace workspace;
    workspace.size_bytes_ = size_bytes;
    workspace.bytes_ = std::unique_ptr<std::byte, Free>(bytes, Free{0});
    return workspace;
  }

  /// count * piece_bytes, if that is small enough to be rounded up to any alignment used here.
  /// \throws std::bad_alloc if it is not, or if either is negative
  static Index size_of(Index count, Index piece_bytes) {
    constexpr Index largest = (std::numeric_limits<Index>::max)() - Index{kLargePage};
    const bool fits =
        count >= 0 && piece_bytes >= 0 && (piece_bytes == 0 || count <= largest / piece_bytes);
    if (!fits) FOVEA_THROW(std::bad_array_new_length());
    return count * piece_bytes;
  }

  /// Takes over the bytes of `other`, which is then empty.
  Workspace(Workspace&& other) noexcept
      : size_bytes_(std::exchange(other.size_bytes_, 0)), bytes_(std::move(other.bytes_)) {}

  /// Frees its own bytes and moves those of `other`, which is then empty.
  Workspace& operator=(Workspace&& other) noexcept {
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    bytes_ = std::move(other.bytes_);
    return *this;
  }

  /// The first byte as a T*.
  template <class T>
  T* data() noexcept {
    check_type<T>();
    return reinterpret_cast<T*>(bytes_.get());
  }
  /// The first byte as a const T*.
  template <class T>
  const T* data() const noexcept {
    check_type<T>();
    return reinterpret_cast<const T*>(bytes_.get());
  }

  /// The size in bytes; 0 if it is empty.
  Index size_bytes() const noexcept { return size_bytes_; }

 private:
  struct Free {
    std::size_t alignment;  // as requested; 0: the bytes are borrowed

    void operator()(std::byte* bytes) const noexcept {
      if (alignment != 0) ::operator delete (bytes, std::align_val_t{alignment});
    }
  };

  template <class T>
  static constexpr void check_type() {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                  "Workspace holds bytes: it runs no constructor and no destructor");
    static_assert(alignof(T) <= kWorkspaceAlignment, "Workspace is aligned to 64 bytes");
  }

  Index size_bytes_ = 0;
  std::unique_ptr<std::byte, Free> bytes_;
};

/// Where one call takes its scratch memory from.
template <class M>
concept ScratchMemory = requires(M& memory, Index count, Index piece_bytes) {
  /// Takes `count` consecutive pieces of `piece_bytes` bytes each. They must not outlive the call,
  /// nor be used before require() has returned.
  { memory.take(count, piece_bytes) } -> std::same_as<Workspace>;
  /// Throws if there was not enough for what was taken.
  memory.require();
  /// Whether a call takes what its shape may need, even if its values do not.
  { memory.is_by_shape() } -> std::same_as<bool>;
};

/// The memory of a call whose executor provides none: each piece comes from the system.
struct SystemMemory {
  /// Allocates. \throws as Workspace's constructor does
  static Workspace take(Index count, Index piece_bytes) { return Workspace(count, piece_bytes); }
  /// Does nothing, since `take` has thrown if there was not enough.
  static void require() {}
  /// False: what is not needed is not taken.
  static constexpr bool is_by_shape() { return false; }
};

FOVEA_NAMESPACE_END
