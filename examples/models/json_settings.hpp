// SPDX-License-Identifier: MIT
/// \file
/// Settings in JSON files, which are untrusted.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fovea/io/json_text.hpp>
#include <fovea/io/mapped_file.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace models {

using fovea::Index;

/// The members of a JSON object in a file. Errors in them are reported in a sentence.
class JsonSettings {
 public:
  /// \throws std::runtime_error "<file>: <what is wrong>"
  explicit JsonSettings(const std::string& path) : path_(path), all_(parsed(path)) {
    if (!all_.is_object()) fovea::refuse_file(path, "it is not a JSON object");
  }

  /// The objects of a JSON list in a file. \throws as above
  static std::vector<JsonSettings> list(const std::string& path) {
    std::vector<JsonSettings> objects;
    const nlohmann::json all = parsed(path);
    bool is_list = all.is_array();
    for (std::size_t i = 0; is_list && i < all.size(); ++i) {
      is_list = all[i].is_object();
      objects.push_back(JsonSettings(path, all[i]));
    }
    if (!is_list) fovea::refuse_file(path, "it is not a JSON list of objects");
    return objects;
  }

  /// The settings of a file, or none if it is not there. \throws as above
  static std::optional<JsonSettings> if_there(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return {};
    return JsonSettings(path);
  }

  /// An integer from low to high. \throws std::runtime_error
  Index number(const char* name, Index low, Index high) const {
    const auto found = find(name);
    if (found != all_.end() && found->is_number_integer()) {
      const auto value = found->is_number_unsigned() && found->get<std::uint64_t>() > kMost
                             ? high + 1
                             : found->get<Index>();
      if (value >= low && value <= high) return value;
    }
    wrong(name, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }

  /// A number above 0. \throws std::runtime_error
  double positive(const char* name) const {
    const auto found = find(name);
    if (found != all_.end() && found->is_number() && found->get<double>() > 0) {
      return found->get<double>();
    }
    wrong(name, "a number above 0");
  }

  /// A string. \throws std::runtime_error
  std::string text(const char* name) const {
    const auto found = find(name);
    if (found == all_.end() || !found->is_string()) wrong(name, "a string");
    return found->get<std::string>();
  }

  /// A Boolean, or a default if it is missing or null. \throws std::runtime_error
  bool flag(const char* name, bool otherwise) const {
    const auto found = find(name);
    if (found == all_.end() || found->is_null()) return otherwise;
    if (!found->is_boolean()) wrong(name, "true or false");
    return found->get<bool>();
  }

  /// Whether there is such a member, and it is not null.
  bool has(const char* name) const {
    const auto found = find(name);
    return found != all_.end() && !found->is_null();
  }

  /// Refuses a member that exists, is not null and is not this value. \throws std::runtime_error
  void expect(const char* name, const nlohmann::json& value) const {
    if (has(name) && all_.at(name) != value) wrong(name, value.dump());
  }

  /// The same of a token, which may be described by an object. \throws std::runtime_error
  void expect_token(const char* name, const std::string& token) const {
    if (!has(name)) return;
    const nlohmann::json& value = all_.at(name);
    const bool is_object = value.is_object() && value.contains("content");
    if ((is_object ? value.at("content") : value) != token) wrong(name, fovea::quoted_name(token));
  }

  /// Refuses members that were not read, except those that do not affect the results.
  /// \throws std::runtime_error
  void refuse_others(std::span<const std::string_view> ignored) const {
    std::vector<std::string> others;
    for (const auto& [name, value] : all_.items()) {
      if (read_.count(name) != 0 || value.is_null()) continue;
      if (std::find(ignored.begin(), ignored.end(), name) == ignored.end()) others.push_back(name);
    }
    if (others.empty()) return;
    fovea::refuse_file(path_, "unknown members: " + fovea::quoted_names(others));
  }

  /// Throws what was expected of a member. \throws std::runtime_error
  [[noreturn]] void wrong(const char* name, const std::string& expected) const {
    const auto found = all_.find(name);
    std::string value = "missing";
    if (found != all_.end()) {
      const auto replace = nlohmann::json::error_handler_t::replace;
      value = fovea::quoted_name(found->is_string() ? found->get<std::string>()
                                                    : found->dump(-1, ' ', false, replace));
    }
    fovea::refuse_file(path_, "'" + std::string(name) + "' is " + value + "; expected " + expected);
  }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 62;

  JsonSettings(std::string path, nlohmann::json object)
      : path_(std::move(path)), all_(std::move(object)) {}

  static nlohmann::json parsed(const std::string& path) {
    constexpr int deepest = 16;
    return fovea::parse_json(fovea::MappedFile(path).text(), deepest,
                             [](int, const std::string*) {});
  }

  nlohmann::json::const_iterator find(const char* name) const {
    read_.insert(name);
    return all_.find(name);
  }

  std::string path_;
  nlohmann::json all_;
  mutable std::set<std::string> read_;
};

}  // namespace models
