// SPDX-License-Identifier: MIT
/// \file
/// A sketch's keys in the layout that its kernel reads: column by column, keys contiguous.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/sketch/select.hpp"

FOVEA_NAMESPACE_BEGIN

/// Sketch keys [B, 1, tokens, d], stored as [B, d, room].
template <class T>
class SketchKeys {
 public:
  /// No keys, for B = batch and d = width; allocates nothing yet.
  SketchKeys(Index batch, Index width) : batch_(batch), width_(width) {}

  /// The columns of the sketch, d.
  Index width() const { return width_; }
  /// Bytes of memory.
  Index size_bytes() const { return memory_.size_bytes(); }
  /// The distance from one column to the next, in elements.
  Index room() const { return room_; }
  /// Column 0 of a batch entry, from key `first` on; null if there are no columns.
  const T* keys(Index b, Index first) const {
    const T* const data = memory_.template data<T>();
    return data == nullptr ? nullptr : data + b * width_ * room_ + first;
  }

  /// Makes room for that many tokens, of which the first `kept` are kept. Growing at least doubles
  /// the memory, so that a token costs O(1) on average.
  /// \throws std::bad_alloc, with nothing changed
  void make_room(Index kept, Index tokens) {
    if (sketch_room(tokens) <= room_) return;
    move_to(kept, (std::max)(tokens, (std::min)(2 * room_, kMostTokens)));
  }
  /// Makes room for that many tokens, allocating no more than that; the first `kept` are kept.
  /// \throws std::bad_alloc, with nothing changed
  void reserve(Index kept, Index tokens) {
    if (sketch_room(tokens) > room_) move_to(kept, tokens);
  }

  /// Makes room for that many tokens, keeping none. clear() must be called next.
  /// \param memory where the memory comes from (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  void take_room(Index tokens, Memory&& memory) {
    memory_ = memory.take(elements(tokens), Index{sizeof(T)});
    room_ = sketch_room(tokens);
  }
  /// Fills the memory with zeros, since vector loads also read beyond the last key.
  void clear() noexcept {
    std::fill_n(memory_.template data<T>(), memory_.size_bytes() / Index{sizeof(T)}, T{0});
  }

  /// Stores rows [from, from + count) of batch entry b of x as the tokens from `first` on.
  /// \pre there is room for them
  void put(const View<const T>& x, Index b, Index from, Index first, Index count) noexcept {
    for (Index c = 0; c < width_; ++c) {
      T* const to = memory_.template data<T>() + (b * width_ + c) * room_ + first;
      for (Index n = 0; n < count; ++n) to[n] = x(b, 0, from + n, c);
    }
  }

  /// A copy of the first tokens, with memory for no more.
  /// \throws std::bad_alloc
  SketchKeys copy(Index tokens) const {
    SketchKeys other(batch_, width_);
    if (tokens > 0) other.copy_from(*this, tokens, tokens);
    return other;
  }

 private:
  static constexpr Index kMostTokens = (std::numeric_limits<Index>::max)() / 4;

  void move_to(Index kept, Index tokens) {
    SketchKeys other(batch_, width_);
    other.copy_from(*this, kept, tokens);
    *this = std::move(other);
  }

  /// Elements of memory for that many tokens. \throws std::bad_alloc if they are too many
  Index elements(Index tokens) const {
    Index columns = 0;
    Index elements = 0;
    if (!detail::multiply(batch_, width_, columns) ||
        !detail::multiply(columns, sketch_room(tokens), elements)) {
      FOVEA_THROW(std::bad_array_new_length());
    }
    return elements;
  }

  void copy_from(const SketchKeys& other, Index kept, Index tokens) {
    take_room(tokens, SystemMemory{});
    clear();
    for (Index column = 0; column < batch_ * width_ && kept > 0; ++column) {
      const T* const from = other.memory_.template data<T>() + column * other.room_;
      std::copy_n(from, kept, memory_.template data<T>() + column * room_);
    }
  }

  Index batch_;
  Index width_;
  Index room_ = 0;
  Workspace memory_;
};

FOVEA_NAMESPACE_END
