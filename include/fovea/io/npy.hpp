// SPDX-License-Identifier: MIT
/// \file
/// NumPy's .npy files, and folders of them that hold a tensor each.
#pragma once

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "fovea/io/mapped_file.hpp"
#include "fovea/io/output_file.hpp"
#include "fovea/io/tensor_set.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// What stands behind 'key': in the header's dictionary, without leading spaces; empty if the key
/// is not there.
inline std::string_view npy_field(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(key) + quote;
    const std::size_t at = header.find(quoted);
    if (at == std::string_view::npos) continue;
    std::string_view rest = header.substr(at + quoted.size());
    rest.remove_prefix((std::min)(rest.find_first_not_of(' '), rest.size()));
    if (!rest.starts_with(':')) continue;
    rest.remove_prefix(1);
    rest.remove_prefix((std::min)(rest.find_first_not_of(' '), rest.size()));
    return rest;
  }
  return {};
}

inline Dtype npy_header_dtype(std::string_view header, const std::string& file) {
  const std::string_view field = npy_field(header, "descr");
  const std::size_t end = field.empty() ? std::string_view::npos : field.find(field[0], 1);
  if (end == std::string_view::npos || (field[0] != '\'' && field[0] != '"')) {
    refuse_file(file, "its header has no simple 'descr', such as '<f4'");
  }
  const std::string_view name = field.substr(1, end - 1);
  const std::optional<Dtype> dtype = npy_dtype(name);
  if (!dtype) {
    refuse_file(file, "its type is " + quoted_name(name) +
                          "; expected one of '<f4', '<f8', '<f2' or an integer, little-endian");
  }
  return *dtype;
}

inline bool npy_is_column_major(std::string_view header, const std::string& file) {
  const std::string_view field = npy_field(header, "fortran_order");
  if (field.starts_with("True")) return true;
  if (field.starts_with("False")) return false;
  refuse_file(file, "its header has no 'fortran_order' of True or False");
}

inline std::vector<Index> npy_shape(std::string_view header, const std::string& file) {
  std::string_view field = npy_field(header, "shape");
  const std::size_t close = field.find(')');
  if (!field.starts_with('(') || close == std::string_view::npos) {
    refuse_file(file, "its header has no 'shape' in parentheses");
  }
  field = field.substr(1, close - 1);
  std::vector<Index> extents;
  while (true) {
    field.remove_prefix((std::min)(field.find_first_not_of(", "), field.size()));
    if (field.empty()) return extents;
    Index extent = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), extent);
    if (error != std::errc{} || extent < 0) refuse_file(file, "its 'shape' holds no sizes");
    field.remove_prefix(static_cast<std::size_t>(end - field.data()));
    extents.push_back(extent);
  }
}

/// The header of a .npy file of version 1, whose data begins at a multiple of 64 bytes.
inline std::string npy_header(const std::string& file, const StoredTensor& tensor) {
  std::string header = "{'descr': '";
  header += names_of(tensor.dtype).npy;
  header += std::string("', 'fortran_order': ") + (tensor.column_major ? "True" : "False");
  header += ", 'shape': (";
  for (const Index extent : tensor.shape) header += std::to_string(extent) + ", ";
  header += "), }";
  constexpr std::size_t magic = 10;
  header.append(63 - (magic + header.size()) % 64, ' ');
  header += '\n';
  if (header.size() > 0xffff) refuse_file(file, "the tensor has too many dimensions for .npy");
  std::string bytes = "\x93NUMPY";
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header;
}

/// Bytes as text, to be written.
inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace detail

/// The tensor in the bytes of a .npy file of version 1 to 3: numbers of any type but complex ones,
/// in C or Fortran order. It refers to the bytes. \param file its name, for messages
/// \throws std::runtime_error "<file>: <what is wrong>"
inline StoredTensor parse_npy(std::span<const std::byte> bytes, const std::string& file) {
  constexpr std::string_view magic = "\x93NUMPY";
  const std::string_view text = detail::as_text(bytes);
  if (!text.starts_with(magic)) refuse_file(file, "it is no .npy file");
  const auto byte = [&](std::size_t i) {
    return i < bytes.size() ? std::to_integer<std::size_t>(bytes[i]) : std::size_t{0};
  };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) {
    refuse_file(file, "its version is " + std::to_string(version) + "; expected 1, 2 or 3");
  }
  const std::size_t begin = version == 1 ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (bytes.size() < begin || bytes.size() - begin < length) {
    refuse_file(file, "it ends within its header");
  }
  const std::string_view header = text.substr(begin, length);
  StoredTensor tensor{.dtype = detail::npy_header_dtype(header, file),
                      .shape = detail::npy_shape(header, file),
                      .bytes = bytes.subspan(begin + length),
                      .column_major = detail::npy_is_column_major(header, file)};
  const Index expected = stored_bytes(tensor.dtype, tensor.shape);
  if (expected < 0) refuse_file(file, "it is too large");
  if (static_cast<Index>(tensor.bytes.size()) != expected) {
    refuse_file(file, "it has " + std::to_string(tensor.bytes.size()) +
                          " bytes of data; expected " + std::to_string(expected) + " for " +
                          shape_text(tensor.shape) + " of " +
                          std::string(names_of(tensor.dtype).npy));
  }
  return tensor;
}

/// The tensor of a .npy file, under this name. \throws std::runtime_error as parse_npy
inline TensorSet read_npy(const std::string& path, const std::string& name = "tensor") {
  const MappedFile file(path);
  TensorSet set{.origin = path, .owners = {file.owner()}};
  set.tensors.emplace(name, parse_npy(file.bytes(), path));
  return set;
}

/// Writes a .npy file, as a whole or not at all.
/// \throws std::runtime_error if it cannot be written, or if .npy has no such type (bfloat16)
inline void write_npy(const std::string& path, const StoredTensor& tensor) {
  if (names_of(tensor.dtype).npy.empty()) {
    refuse_file(path, ".npy has no type for " + std::string(names_of(tensor.dtype).safetensors));
  }
  const std::string header = detail::npy_header(path, tensor);
  const std::string_view pieces[] = {header, detail::as_text(tensor.bytes)};
  write_file(path, pieces);
}

/// The tensors of all files NAME.npy of a folder, by NAME.
/// \throws std::runtime_error if the folder cannot be read, or as parse_npy
inline TensorSet read_npy_folder(const std::string& folder) {
  TensorSet set{.origin = folder};
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".npy") continue;
    TensorSet one = read_npy(entry->path().string(), entry->path().stem().string());
    set.tensors.merge(one.tensors);
    set.owners.push_back(one.owners.front());
  }
  if (error) refuse_file(folder, "cannot be read: " + error.message());
  return set;
}

/// Writes each tensor into a file NAME.npy of a folder, which is made if it is not there. Files of
/// other names stay; metadata is not written.
/// \throws std::runtime_error as write_npy, or if a name is no name of a file; the files before
/// that one have been written
inline void write_npy_folder(const std::string& folder, const TensorSet& set) {
  for (const auto& [name, tensor] : set.tensors) {
    if (name.empty() || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      refuse_file(folder, quoted_name(name) + " cannot be the name of a file");
    }
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) refuse_file(folder, "cannot be made: " + error.message());
  for (const auto& [name, tensor] : set.tensors) write_npy(folder + '/' + name + ".npy", tensor);
}

FOVEA_NAMESPACE_END
