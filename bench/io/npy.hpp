// SPDX-License-Identifier: MIT
/// \file
/// Reads NumPy's .npy files, versions 1 and 2: little-endian float32 and float64, C or Fortran
/// order, of 2 to 4 dimensions [B, H, N, D], [H, N, D] or [N, D].
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "fovea/core/view.hpp"

namespace bench {

using fovea::Index;

/// A tensor from a file, in row-major order and as float.
struct NpyTensor {
  fovea::Shape shape{};       ///< [B, H, N, D]; leading ones where the file has fewer dimensions
  std::string dtype;          ///< of the file: "<f4" or "<f8"
  std::vector<float> values;  ///< [B, H, N, D]
};

namespace detail {

/// "<file>: <what>".
[[noreturn]] inline void refuse_npy(const std::string& file, const std::string& what) {
  throw std::runtime_error(file + ": " + what);
}

/// What stands behind 'key': in the header's dictionary, without leading spaces; empty if the key
/// is not there.
inline std::string_view npy_field(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(key) + quote;
    const std::size_t at = header.find(quoted);
    if (at == std::string_view::npos) continue;
    std::string_view rest = header.substr(at + quoted.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (!rest.starts_with(':')) continue;
    rest.remove_prefix(1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return rest;
  }
  return {};
}

inline std::string npy_dtype(std::string_view header, const std::string& file) {
  const std::string_view field = npy_field(header, "descr");
  const std::size_t end = field.empty() ? std::string_view::npos : field.find(field[0], 1);
  if (end == std::string_view::npos || (field[0] != '\'' && field[0] != '"')) {
    refuse_npy(file, "its header has no simple 'descr'; expected '<f4' or '<f8'");
  }
  std::string dtype(field.substr(1, end - 1));
  if (dtype != "<f4" && dtype != "<f8") {
    refuse_npy(file, "its type is '" + dtype +
                         "'; expected '<f4' or '<f8' (float32 or float64, little-endian)");
  }
  return dtype;
}

inline bool npy_fortran_order(std::string_view header, const std::string& file) {
  const std::string_view field = npy_field(header, "fortran_order");
  if (field.starts_with("True")) return true;
  if (field.starts_with("False")) return false;
  refuse_npy(file, "its header has no 'fortran_order' of True or False");
}

inline std::vector<Index> npy_shape(std::string_view header, const std::string& file) {
  std::string_view field = npy_field(header, "shape");
  const std::size_t close = field.find(')');
  if (!field.starts_with('(') || close == std::string_view::npos) {
    refuse_npy(file, "its header has no 'shape' in parentheses");
  }
  field = field.substr(1, close - 1);
  std::vector<Index> extents;
  while (true) {
    field.remove_prefix(std::min(field.find_first_not_of(", "), field.size()));
    if (field.empty()) return extents;
    Index extent = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), extent);
    if (error != std::errc{} || extent < 0) refuse_npy(file, "its 'shape' holds no sizes");
    field.remove_prefix(static_cast<std::size_t>(end - field.data()));
    extents.push_back(extent);
  }
}

/// Pads to [B, H, N, D] and checks that the element count fits.
inline fovea::Shape npy_four(const std::vector<Index>& extents, const std::string& file) {
  if (extents.size() < 2 || extents.size() > 4) {
    refuse_npy(file, "it has " + std::to_string(extents.size()) +
                         " dimensions; expected [B, H, N, D], [H, N, D] or [N, D]");
  }
  fovea::Shape shape = {1, 1, 1, 1};
  Index size = 1;
  for (std::size_t d = 0; d < extents.size(); ++d) {
    const Index extent = extents[d];
    if (extent == 0) refuse_npy(file, "it has a dimension of 0");
    if (size > std::numeric_limits<Index>::max() / 8 / extent) refuse_npy(file, "it is too large");
    size *= extent;
    shape[4 - extents.size() + d] = extent;
  }
  return shape;
}

/// Element i of little-endian T.
template <class T>
float npy_element(std::string_view data, Index i) {
  static_assert(std::endian::native == std::endian::little);
  T x;
  std::memcpy(&x, data.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return static_cast<float>(x);
}

template <class T>
void npy_values(std::string_view data, bool fortran_order, NpyTensor& tensor) {
  const auto& [b, h, n, d] = tensor.shape;
  const fovea::Shape strides =
      fortran_order ? fovea::Shape{1, b, b * h, b * h * n} : fovea::row_major(tensor.shape);
  tensor.values.reserve(static_cast<std::size_t>(b * h * n * d));
  for (Index i = 0; i < b * h * n * d; ++i) {
    const Index from = i / (h * n * d) * strides[0] + i / (n * d) % h * strides[1] +
                       i / d % n * strides[2] + i % d * strides[3];
    tensor.values.push_back(npy_element<T>(data, from));
  }
}

}  // namespace detail

/// The tensor in the bytes of a file. \param file its name, for messages
/// \throws std::runtime_error "<file>: <what is wrong>"
inline NpyTensor parse_npy(std::string_view bytes, const std::string& file) {
  constexpr std::string_view magic = "\x93NUMPY";
  if (!bytes.starts_with(magic)) detail::refuse_npy(file, "it is no .npy file");
  const auto byte = [&](std::size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : std::size_t{0};
  };
  const std::size_t version = byte(6);
  if (version != 1 && version != 2) {
    detail::refuse_npy(file, "its version is " + std::to_string(version) + "; expected 1 or 2");
  }
  const std::size_t begin = version == 1 ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (version == 2) length |= byte(10) << 16 | byte(11) << 24;
  if (bytes.size() < begin || bytes.size() - begin < length) {
    detail::refuse_npy(file, "it ends within its header");
  }
  const std::string_view header = bytes.substr(begin, length);
  const std::string_view data = bytes.substr(begin + length);

  NpyTensor tensor;
  tensor.dtype = detail::npy_dtype(header, file);
  tensor.shape = detail::npy_four(detail::npy_shape(header, file), file);
  const bool fortran_order = detail::npy_fortran_order(header, file);
  const std::size_t width = tensor.dtype == "<f4" ? 4 : 8;
  std::size_t expected = width;
  for (const Index extent : tensor.shape) expected *= static_cast<std::size_t>(extent);
  if (data.size() != expected) {
    detail::refuse_npy(file, "it has " + std::to_string(data.size()) + " bytes of data; expected " +
                                 std::to_string(expected) + " for " +
                                 fovea::to_string(tensor.shape) + " of " + tensor.dtype);
  }
  if (width == 4) detail::npy_values<float>(data, fortran_order, tensor);
  if (width == 8) detail::npy_values<double>(data, fortran_order, tensor);
  return tensor;
}

/// All bytes of a file. \throws std::runtime_error
inline std::string read_file(const std::string& path) {
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  std::ifstream stream(path, std::ios::binary);
  if (is_directory || !stream) throw std::runtime_error(path + ": cannot be read");
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  if (stream.bad() || bytes.bad()) throw std::runtime_error(path + ": cannot be read");
  return std::move(bytes).str();
}

/// \throws std::runtime_error "<path>: <what is wrong>"
inline NpyTensor read_npy(const std::string& path) { return parse_npy(read_file(path), path); }

}  // namespace bench
