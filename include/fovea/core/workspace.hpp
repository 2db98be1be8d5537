// SPDX-License-Identifier: MIT
/// \file
/// The scratch memory of an operator, which is taken once before threads start.
#pragma once

#include <cstddef>
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

/// The size in bytes of a large page. A Workspace of several of them begins at one, and asks the
/// system, where it can be asked, for pages of this size. (In measurements steps of a decoder that
/// reads its cache from memory took 0.75 to 0.93 of the time on them.)
inline constexpr std::size_t kLargePage = std::size_t{1} << 21;

/// Owns uninitialised bytes, aligned to kWorkspaceAlignment. An empty one owns nothing, and its
/// data() is null.
class Workspace {
 public:
  Workspace() = default;

  /// \throws std::bad_alloc if size_bytes is negative or there is not enough memory
  explicit Workspace(Index size_bytes) : Workspace(size_bytes, 1) {}

  /// Takes `count` pieces of `piece_bytes` bytes each, without gaps.
  /// \throws std::bad_alloc if either is negative, if the product is too large, or if there is not
  /// enough memory
  Workspace(Index count, Index piece_bytes) : size_bytes_(product(count, piece_bytes)) {
    if (size_bytes_ == 0) return;
    const auto size = static_cast<std::size_t>(size_bytes_);
    const std::size_t alignment = size < 2 * kLargePage ? kWorkspaceAlignment : kLargePage;
    auto* const bytes = static_cast<std::byte*>(::operator new (size, std::align_val_t{alignment}));
    bytes_ = std::unique_ptr<std::byte, Free>(bytes, Free{alignment});
#if defined(MADV_HUGEPAGE)
    // A wish: where it fails, pages are small.
    if (alignment == kLargePage) madvise(bytes, size / kLargePage * kLargePage, MADV_HUGEPAGE);
#endif
  }

  /// Takes over the bytes of another one, which is then empty.
  Workspace(Workspace&& other) noexcept
      : size_bytes_(std::exchange(other.size_bytes_, 0)), bytes_(std::move(other.bytes_)) {}

  /// Frees its own bytes and takes over those of another one, which is then empty.
  Workspace& operator=(Workspace&& other) noexcept {
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    bytes_ = std::move(other.bytes_);
    return *this;
  }

  /// The address of the first byte as that of a T.
  template <class T>
  T* data() noexcept {
    check_type<T>();
    return reinterpret_cast<T*>(bytes_.get());
  }
  /// The address of the first byte as that of a T that is only read.
  template <class T>
  const T* data() const noexcept {
    check_type<T>();
    return reinterpret_cast<const T*>(bytes_.get());
  }

  /// The size in bytes; 0 if it is empty.
  Index size_bytes() const noexcept { return size_bytes_; }

 private:
  struct Free {
    std::size_t alignment;  // as it was asked for

    void operator()(std::byte* bytes) const noexcept {
      ::operator delete (bytes, std::align_val_t{alignment});
    }
  };

  template <class T>
  static constexpr void check_type() {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                  "Workspace holds bytes: it runs no constructor and no destructor");
    static_assert(alignof(T) <= kWorkspaceAlignment, "Workspace is aligned to 64 bytes");
  }

  /// count * piece_bytes, if that is small enough to be rounded up to the alignment.
  static Index product(Index count, Index piece_bytes) {
    constexpr Index largest = (std::numeric_limits<Index>::max)() - Index{kLargePage};
    const bool fits =
        count >= 0 && piece_bytes >= 0 && (piece_bytes == 0 || count <= largest / piece_bytes);
    if (!fits) FOVEA_THROW(std::bad_array_new_length());
    return count * piece_bytes;
  }

  Index size_bytes_ = 0;
  std::unique_ptr<std::byte, Free> bytes_;
};

FOVEA_NAMESPACE_END
