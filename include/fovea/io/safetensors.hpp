// SPDX-License-Identifier: MIT
/// \file
/// The safetensors format: the length of a header, a JSON header with each tensor's type, shape and
/// offsets, and the tensors' bytes without gaps. Needs nlohmann_json (the CMake target fovea::io).
#pragma once

#include <algorithm>
#include <set>

#include "fovea/io/json_text.hpp"
#include "fovea/io/mapped_file.hpp"
#include "fovea/io/output_file.hpp"
#include "fovea/io/tensor_set.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The header of an untrusted file.
class SafetensorsHeader {
 public:
  using Json = nlohmann::json;

  explicit SafetensorsHeader(const std::string& file) : file_(file) {}

  /// Adds the tensors and strings to the set. \param data the bytes after the header
  void parse(std::string_view text, std::span<const std::byte> data, TensorSet& set) {
    const Json header = parse_json(text);
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        parse_metadata(value, set);
      } else {
        parse_tensor(name, value, data, set);
      }
    }
    check_places(data.size());
  }

 private:
  struct Place {
    std::size_t begin;
    std::size_t end;
    std::string name;
  };

  /// The JSON value, an object without duplicate names and no deeper than a tensor's lists.
  Json parse_json(std::string_view text) {
    constexpr int deepest = 3;
    std::vector<std::set<std::string>> names(deepest);
    std::string twice;
    Json header = fovea::parse_json(text, deepest, [&](int depth, const std::string* name) {
      std::set<std::string>& known = names[static_cast<std::size_t>(depth)];
      if (name == nullptr) return known.clear();
      if (!known.insert(*name).second) twice = *name;
    });
    if (!header.is_object()) refuse_file(file_, "its header is not a JSON object of tensors");
    if (!twice.empty()) refuse_file(file_, quoted_name(twice) + " appears twice in its header");
    return header;
  }

  void parse_metadata(const Json& value, TensorSet& set) const {
    if (value.is_null()) return;
    if (!value.is_object()) refuse_file(file_, "its metadata is not a JSON object");
    for (const auto& [name, text] : value.items()) {
      if (!text.is_string()) {
        refuse_file(file_, quoted_name(name) + " in its metadata is not a string");
      }
      set.metadata.emplace(name, text.template get_ref<const std::string&>());
    }
  }

  /// A list of non-negative numbers, of this length unless it is 0.
  std::vector<Index> sizes(const Json& tensor, const char* field, const std::string& name,
                           std::size_t length) const {
    std::vector<Index> all;
    const auto found = tensor.find(field);
    bool is_right = found != tensor.end() && found->is_array();
    if (is_right) {
      for (const Json& number : *found) {
        is_right = is_right && number.is_number_unsigned() &&
                   number.template get<std::uint64_t>() <=
                       static_cast<std::uint64_t>((std::numeric_limits<Index>::max)());
        if (is_right) all.push_back(number.template get<Index>());
      }
      is_right = is_right && (length == 0 || all.size() == length);
    }
    if (!is_right) {
      refuse_file(file_,
                  "the " + std::string(field) + " of " + quoted_name(name) + " is not a list of " +
                      (length == 0 ? std::string() : std::to_string(length) + ' ') + "sizes");
    }
    return all;
  }

  void parse_tensor(const std::string& name, const Json& value, std::span<const std::byte> data,
                    TensorSet& set) {
    if (!value.is_object()) refuse_file(file_, quoted_name(name) + " is not a JSON object");
    const auto type = value.find("dtype");
    if (type == value.end() || !type->is_string()) {
      refuse_file(file_, quoted_name(name) + " has no dtype");
    }
    const std::string& type_name = type->template get_ref<const std::string&>();
    const std::optional<Dtype> dtype = safetensors_dtype(type_name);
    if (!dtype) {
      refuse_file(file_, "the dtype of " + quoted_name(name) + " is " + quoted_name(type_name) +
                             ", which is not supported");
    }
    const std::vector<Index> shape = sizes(value, "shape", name, 0);
    const std::vector<Index> place = sizes(value, "data_offsets", name, 2);
    if (place[0] > place[1] || place[1] > static_cast<Index>(data.size())) {
      refuse_file(file_, "the data of " + quoted_name(name) + " is at " + std::to_string(place[0]) +
                             " to " + std::to_string(place[1]) + " of " +
                             std::to_string(data.size()) + " bytes");
    }
    const Index bytes = stored_bytes(*dtype, shape);
    if (bytes != place[1] - place[0]) {
      refuse_file(file_, quoted_name(name) + " has " + std::to_string(place[1] - place[0]) +
                             " bytes of data, which does not match " + shape_text(shape) + " of " +
                             type_name);
    }
    const auto begin = static_cast<std::size_t>(place[0]);
    const auto end = static_cast<std::size_t>(place[1]);
    set.tensors.emplace(
        name,
        StoredTensor{.dtype = *dtype, .shape = shape, .bytes = data.subspan(begin, end - begin)});
    places_.push_back({begin, end, name});
  }

  /// Checks that every byte belongs to exactly one tensor.
  void check_places(std::size_t size) {
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::size_t next = 0;
    for (const Place& place : places_) {
      if (place.begin != next) {
        refuse_file(file_, "the data of " + quoted_name(place.name) + " begins at byte " +
                               std::to_string(place.begin) + "; expected " + std::to_string(next) +
                               ", the end of the data before it");
      }
      next = place.end;
    }
    if (next != size) {
      refuse_file(file_, "it has " + std::to_string(size) + " bytes of data; its tensors have " +
                             std::to_string(next));
    }
  }

  const std::string& file_;
  std::vector<Place> places_;
};

}  // namespace detail

/// The tensors in the bytes of a safetensors file, to which they refer. \param file its name, for
/// messages
/// \throws std::runtime_error "<file>: <what is wrong>"; for any bytes, nothing else can happen
inline TensorSet parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  constexpr std::size_t prefix = sizeof(std::uint64_t);
  constexpr std::uint64_t longest = 100'000'000;  // what the format allows
  std::uint64_t length = 0;
  if (bytes.size() < prefix) refuse_file(file, "it is too short for a safetensors file");
  std::memcpy(&length, bytes.data(), prefix);
  if (length > longest || length > bytes.size() - prefix) {
    refuse_file(file, "its header has " + std::to_string(length) + " bytes; the file has " +
                          std::to_string(bytes.size()) + ", and a header at most " +
                          std::to_string(longest));
  }
  TensorSet set{.origin = file};
  const auto header = bytes.subspan(prefix, static_cast<std::size_t>(length));
  detail::SafetensorsHeader(file).parse(
      {reinterpret_cast<const char*>(header.data()), header.size()},
      bytes.subspan(prefix + static_cast<std::size_t>(length)), set);
  return set;
}

/// The tensors of a file, which stays mapped as long as a copy of the set exists.
/// \throws std::runtime_error if it cannot be read, or as parse_safetensors
inline TensorSet read_safetensors(const std::string& path) {
  const MappedFile file(path);
  TensorSet set = parse_safetensors(file.bytes(), path);
  set.owners.push_back(file.owner());
  return set;
}

/// Writes a file atomically, with tensors in the order of their names.
/// \throws std::runtime_error if it cannot be written, or if a tensor is column-major, is named
/// "__metadata__" or has a name that is not UTF-8
inline void write_safetensors(const std::string& path, const TensorSet& set) {
  nlohmann::json header = nlohmann::json::object();
  if (!set.metadata.empty()) header["__metadata__"] = set.metadata;
  std::vector<std::string_view> pieces(1);
  std::size_t next = 0;
  for (const auto& [name, tensor] : set.tensors) {
    if (name == "__metadata__" || tensor.column_major || tensor.decode != nullptr) {
      refuse_file(path, quoted_name(name) + " cannot be written: it is " +
                            (tensor.decode != nullptr ? "of a type that the format does not have"
                             : tensor.column_major    ? "column-major"
                                                      : "the name of the metadata"));
    }
    const std::size_t end = next + tensor.bytes.size();
    header[name] = {{"dtype", names_of(tensor.dtype).safetensors},
                    {"shape", tensor.shape},
                    {"data_offsets", {next, end}}};
    next = end;
    pieces.emplace_back(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  // Invalid UTF-8 is replaced visibly.
  const auto replace = nlohmann::json::error_handler_t::replace;
  std::string text = header.dump(-1, ' ', false, replace);
  if (nlohmann::json::parse(text) != header) refuse_file(path, "a name or string is not UTF-8");
  text.append((8 - text.size() % 8) % 8, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  std::string first(sizeof(length), '\0');
  std::memcpy(first.data(), &length, sizeof(length));
  first += text;
  pieces[0] = first;
  write_file(path, pieces);
}

FOVEA_NAMESPACE_END
