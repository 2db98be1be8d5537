// SPDX-License-Identifier: MIT
/// \file
/// Model files in the GGUF format, versions 2 and 3: their metadata, and their tensors as named
/// tensors whose numbers become floats when they are read.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <fovea/io.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "quantised.hpp"

namespace models {

using fovea::Index;

/// A value of the metadata: a number, a Boolean, a string, or a list of these.
using GgufValue = std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

/// The contents of a file.
struct Gguf {
  std::map<std::string, GgufValue> metadata;
  fovea::TensorSet tensors;  ///< with shapes as [rows, columns], the last index fastest

  bool has(const std::string& key) const { return metadata.count(key) != 0; }

  /// The value of a key as a T, which is one of those that GgufValue holds.
  /// \throws std::runtime_error if it is missing or has another type
  template <class T>
  const T& at(const std::string& key) const {
    const auto found = metadata.find(key);
    if (found == metadata.end()) {
      fovea::refuse_file(tensors.origin, "there is no " + fovea::quoted_name(key));
    }
    const T* const value = std::get_if<T>(&found->second);
    if (value == nullptr) {
      fovea::refuse_file(tensors.origin, fovea::quoted_name(key) + " is of another type");
    }
    return *value;
  }

  /// The size that a key gives. \throws std::runtime_error if it is not in [least, most]
  Index size_at(const std::string& key, Index least, Index most) const {
    const std::int64_t value = at<std::int64_t>(key);
    if (value < least || value > most) {
      fovea::refuse_file(tensors.origin, fovea::quoted_name(key) + " is " + std::to_string(value) +
                                             "; expected " + std::to_string(least) +
                                             (least == most ? "" : " to " + std::to_string(most)));
    }
    return value;
  }
};

/// Reads the parts of a file in order.
class GgufReader {
 public:
  /// \param bytes of the file \param file its name, for messages
  GgufReader(std::span<const std::byte> bytes, const std::string& file)
      : bytes_(bytes), file_(file) {}

  /// \throws std::runtime_error "<file>: <what is wrong>"; no bytes make it do anything else
  Gguf read() {
    Gguf all;
    all.tensors.origin = file_;
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
      fovea::refuse_file(file_, "it is not a GGUF file");
    }
    at_ = 4;
    const auto version = number<std::uint32_t>();
    if (version != 2 && version != 3) {
      fovea::refuse_file(file_, "its version is " + std::to_string(version) + "; expected 2 or 3");
    }
    const std::size_t tensors = count(kLeastTensorBytes);
    const std::size_t values = count(kLeastValueBytes);
    for (std::size_t i = 0; i < values; ++i) {
      std::string key = text();
      GgufValue read = value(number<std::uint32_t>(), key);
      if (!all.metadata.emplace(key, std::move(read)).second) twice(key);
    }
    read_tensors(tensors, all);
    return all;
  }

 private:
  /// The position of a tensor's data.
  struct Place {
    std::string name;
    std::uint64_t offset;
    std::size_t size;
  };

  static constexpr std::size_t kLeastTensorBytes = 24;
  static constexpr std::size_t kLeastValueBytes = 13;
  static constexpr std::uint32_t kList = 9;
  static constexpr std::uint32_t kText = 8;

  [[noreturn]] void twice(const std::string& name) const {
    fovea::refuse_file(file_, fovea::quoted_name(name) + " appears twice");
  }

  std::span<const std::byte> take(std::size_t size) {
    if (size > bytes_.size() - at_) fovea::refuse_file(file_, "it is truncated");
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  /// A number of elements that have at least that many bytes each.
  std::size_t count(std::size_t least_bytes) {
    const auto many = number<std::uint64_t>();
    if (many > (bytes_.size() - at_) / least_bytes) {
      fovea::refuse_file(file_, "it is too short for " + std::to_string(many) + " entries");
    }
    return static_cast<std::size_t>(many);
  }

  std::string text() {
    const std::span<const std::byte> bytes = take(count(1));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// A number of one of the types that files have, as an integer or a double.
  GgufValue scalar(std::uint32_t type, const std::string& key) {
    switch (type) {
      case 0:
        return std::int64_t{number<std::uint8_t>()};
      case 1:
        return std::int64_t{number<std::int8_t>()};
      case 2:
        return std::int64_t{number<std::uint16_t>()};
      case 3:
        return std::int64_t{number<std::int16_t>()};
      case 4:
        return std::int64_t{number<std::uint32_t>()};
      case 5:
        return std::int64_t{number<std::int32_t>()};
      case 6:
        return double{number<float>()};
      case 7:
        return number<std::uint8_t>() != 0;
      case 10:  // larger ones than fit are negative, which no size may be
        return static_cast<std::int64_t>(number<std::uint64_t>());
      case 11:
        return number<std::int64_t>();
      case 12:
        return number<double>();
      default:
        fovea::refuse_file(file_, "the type of " + fovea::quoted_name(key) + " is " +
                                      std::to_string(type) + ", which is not supported");
    }
  }

  template <class T>
  std::vector<T> list(std::uint32_t type, std::size_t many, const std::string& key) {
    std::vector<T> all;
    all.reserve(many);
    for (std::size_t i = 0; i < many; ++i) all.push_back(std::get<T>(scalar(type, key)));
    return all;
  }

  GgufValue value(std::uint32_t type, const std::string& key) {
    if (type == kText) return text();
    if (type != kList) return scalar(type, key);
    const auto of = number<std::uint32_t>();
    if (of == kText) {
      std::vector<std::string> all(count(sizeof(std::uint64_t)));
      for (std::string& one : all) one = text();
      return all;
    }
    const std::size_t many = count(1);
    if (of == 6 || of == 12) return list<double>(of, many, key);
    if (of == 7) {  // truth values are kept as numbers
      return list<std::int64_t>(0, many, key);
    }
    return list<std::int64_t>(of, many, key);
  }

  void read_tensors(std::size_t many, Gguf& all) {
    std::vector<Place> places;
    for (std::size_t i = 0; i < many; ++i) {
      Place place{text(), 0, 0};
      fovea::StoredTensor tensor;
      tensor.shape.resize(dimensions(place.name));
      for (std::size_t d = tensor.shape.size(); d-- > 0;) {
        tensor.shape[d] = static_cast<Index>(number<std::uint64_t>());
      }
      const auto type = number<std::uint32_t>();
      const BlockFormat* const format = format_of(type);
      if (format == nullptr) {
        fovea::refuse_file(file_, "the type of " + fovea::quoted_name(place.name) + " is " +
                                      std::to_string(type) + ", which is not supported");
      }
      tensor.decode = format->decode;
      place.offset = number<std::uint64_t>();
      place.size = size_of(*format, place.name, tensor.shape);
      if (!all.tensors.tensors.emplace(place.name, tensor).second) twice(place.name);
      places.push_back(std::move(place));
    }
    const std::size_t step = alignment_of(all);
    const auto aligned = [step](std::size_t at) { return (at + step - 1) / step * step; };
    const std::size_t begin = aligned(at_);
    const std::size_t room = begin < bytes_.size() ? bytes_.size() - begin : 0;
    std::size_t next = 0;
    for (const Place& place : places) {
      if (place.offset != next) {
        fovea::refuse_file(file_, "the data of " + fovea::quoted_name(place.name) +
                                      " begins at byte " + std::to_string(place.offset) +
                                      "; expected " + std::to_string(next) +
                                      ", after the preceding data, aligned");
      }
      if (next > room || place.size > room - next) {
        fovea::refuse_file(file_, "it ends before the data of " + fovea::quoted_name(place.name));
      }
      all.tensors.tensors.at(place.name).bytes = bytes_.subspan(begin + next, place.size);
      next = aligned(next + place.size);
    }
  }

  /// The alignment of the offsets of tensors.
  std::size_t alignment_of(const Gguf& all) const {
    constexpr const char* key = "general.alignment";
    if (!all.has(key)) return 32;
    const auto alignment = static_cast<std::size_t>(all.size_at(key, 1, 1 << 20));
    if (alignment % 8 != 0 || !std::has_single_bit(alignment)) {
      fovea::refuse_file(file_, fovea::quoted_name(key) + " is " + std::to_string(alignment) +
                                    "; expected a power of 2 of at least 8");
    }
    return alignment;
  }

  std::uint32_t dimensions(const std::string& name) {
    const auto many = number<std::uint32_t>();
    if (many < 1 || many > 4) {
      fovea::refuse_file(file_, fovea::quoted_name(name) + " has " + std::to_string(many) +
                                    " dimensions; expected 1 to 4");
    }
    return many;
  }

  /// The bytes of a tensor, whose rows are whole blocks.
  std::size_t size_of(const BlockFormat& format, const std::string& name,
                      const std::vector<Index>& shape) const {
    const Index floats = fovea::stored_bytes(fovea::Dtype::f32, shape);
    if (floats < 0 || shape.back() % format.numbers != 0) {
      fovea::refuse_file(file_, "the shape of " + fovea::quoted_name(name) + " is " +
                                    fovea::shape_text(shape) + ", which is impossible");
    }
    const Index blocks = floats / static_cast<Index>(sizeof(float)) / format.numbers;
    return static_cast<std::size_t>(blocks) * static_cast<std::size_t>(format.bytes);
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::size_t at_ = 0;
};

/// The contents of a file, which stays mapped as long as a copy of the set of tensors exists.
/// \throws std::runtime_error if it cannot be read or is not a GGUF file
inline Gguf read_gguf(const std::string& path) {
  const fovea::MappedFile file(path);
  Gguf all = GgufReader(file.bytes(), path).read();
  all.tensors.owners.push_back(file.owner());
  return all;
}

}  // namespace models
