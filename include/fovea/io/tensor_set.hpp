// SPDX-License-Identifier: MIT
/// \file
/// Named tensors as stored in a file: the common form of file formats and parameters.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/io/dtype.hpp"
#include "fovea/io/file_error.hpp"

FOVEA_NAMESPACE_BEGIN

/// A tensor as stored in a file. It does not own the bytes.
struct StoredTensor {
  Dtype dtype = Dtype::f32;               ///< the type of its elements
  std::vector<Index> shape = {};          ///< its extents, each 0 or more; empty for a scalar
  std::span<const std::byte> bytes = {};  ///< its elements without gaps, the last index fastest
  bool column_major = false;              ///< whether the first index is fastest instead
  /// Decodes `count` elements to float, for files whose elements have no Dtype, such as quantised
  /// ones; null if they are of `dtype`. `count` is all elements, or a multiple of 4096 that begins
  /// at one.
  void (*decode)(const std::byte* from, Index count, float* to) = nullptr;

  /// The number of elements.
  Index size() const {
    if (decode == nullptr) return static_cast<Index>(bytes.size()) * 8 / names_of(dtype).bits;
    Index count = 1;
    for (const Index extent : shape) count *= extent;
    return count;
  }

  /// Converts the elements to T.
  /// \param to [size()] is written, the last index fastest
  /// \throws std::runtime_error if elements of this type are not converted (is_converted)
  template <class T>
  void read(T* to) const {
    if (decode != nullptr) return read_decoded(to);
    if (!column_major) return from_bytes(dtype, bytes.data(), size(), to);
    std::vector<T> elements(static_cast<std::size_t>(size()));
    from_bytes(dtype, bytes.data(), size(), elements.data());
    std::vector<Index> index(shape.size(), 0);
    for (Index i = 0; i < size(); ++i) {
      Index from = 0;
      for (std::size_t d = shape.size(); d-- > 0;) from = from * shape[d] + index[d];
      to[i] = elements[static_cast<std::size_t>(from)];
      for (std::size_t d = shape.size(); d-- > 0;) {
        if (++index[d] < shape[d]) break;
        index[d] = 0;
      }
    }
  }

 private:
  template <class T>
  void read_decoded(T* to) const {
    constexpr Index piece = 4096;
    std::array<float, piece> floats;
    const Index count = size();
    if (count == 0) return;
    const Index piece_bytes = static_cast<Index>(bytes.size()) * piece / count;
    for (Index first = 0; first < count; first += piece) {
      const Index many = (std::min)(piece, count - first);
      const std::byte* const from = bytes.data() + first / piece * piece_bytes;
      if constexpr (std::same_as<T, float>) {
        decode(from, many, to + first);
      } else {
        decode(from, many, floats.data());
        for (Index i = 0; i < many; ++i) {
          to[first + i] = static_cast<T>(floats[static_cast<std::size_t>(i)]);
        }
      }
    }
  }
};

/// A shape as text: "[3, 4]".
inline std::string shape_text(const std::vector<Index>& shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  }
  return text + "]";
}

/// The bytes of a tensor of this shape, or -1 if its bits overflow Index or are not whole bytes, or
/// if an extent is negative.
inline Index stored_bytes(Dtype dtype, const std::vector<Index>& shape) {
  Index bits = names_of(dtype).bits;
  bool empty = false;
  for (const Index extent : shape) {
    if (extent < 0) return -1;
    if (extent == 0) {
      empty = true;
    } else if (bits > (std::numeric_limits<Index>::max)() / extent) {
      return -1;
    } else {
      bits *= extent;
    }
  }
  if (empty) return 0;
  return bits % 8 == 0 ? bits / 8 : -1;
}

/// Tensors by name, in name order, and metadata strings.
struct TensorSet {
  std::string origin = {};                           ///< their origin, for messages
  std::map<std::string, StoredTensor> tensors = {};  ///< the tensors
  std::map<std::string, std::string> metadata = {};  ///< the strings
  /// Owners of the tensors' bytes, for example a mapped file. May be empty if the caller owns the
  /// memory.
  std::vector<std::shared_ptr<const void>> owners = {};

  /// The tensor of this name. \throws std::runtime_error if missing, or if its elements are not
  /// converted (is_converted)
  const StoredTensor& at(const std::string& name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end()) refuse_file(origin, "there is no tensor " + quoted_name(name));
    const Dtype dtype = found->second.dtype;
    if (!is_converted(dtype)) {
      refuse_file(origin, quoted_name(name) + " cannot be read: " + why_not_converted(dtype));
    }
    return found->second;
  }

  /// The string of this name. \throws std::runtime_error if missing
  const std::string& string_at(const std::string& name) const {
    const auto found = metadata.find(name);
    if (found == metadata.end()) {
      refuse_file(origin, "there is no " + quoted_name(name) + " in its metadata");
    }
    return found->second;
  }
};

FOVEA_NAMESPACE_END
