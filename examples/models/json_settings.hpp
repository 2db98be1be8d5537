// SPDX-License-Identifier: MIT
/// \file
/// Settings in files of JSON, which may have been made to do harm.
#pragma once

#include <filesystem>
#include <fovea/io/mapped_file.hpp>
#include <nlohmann/json.hpp>
#include <optional>

namespace models {

using fovea::Index;

/// The members of a JSON object in a file, with what is wrong with them said in a sentence.
class JsonSettings {
 public:
  /// \throws std::runtime_error "<file>: <what is wrong>"
  explicit JsonSettings(const std::string& path) : path_(path) {
    constexpr int deepest = 16;
    const fovea::MappedFile file(path);
    const auto* const text = reinterpret_cast<const char*>(file.bytes().data());
    bool is_too_deep = false;
    const auto look = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      is_too_deep = is_too_deep || depth > deepest;
      return !is_too_deep;
    };
    all_ = nlohmann::json::parse(text, text + file.bytes().size(), look, false);
    if (is_too_deep || !all_.is_object()) fovea::refuse_file(path, "it is no JSON object");
  }

  /// The settings of a file, or none if it is not there. \throws as above
  static std::optional<JsonSettings> if_there(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return {};
    return JsonSettings(path);
  }

  /// A whole number from low to high. \throws std::runtime_error
  Index number(const char* name, Index low, Index high) const {
    const auto found = all_.find(name);
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
    const auto found = all_.find(name);
    if (found != all_.end() && found->is_number() && found->get<double>() > 0) {
      return found->get<double>();
    }
    wrong(name, "a number above 0");
  }

  /// A string. \throws std::runtime_error
  std::string text(const char* name) const {
    const auto found = all_.find(name);
    if (found == all_.end() || !found->is_string()) wrong(name, "a string");
    return found->get<std::string>();
  }

  /// A truth value, or this one where there is none or null. \throws std::runtime_error
  bool flag(const char* name, bool otherwise) const {
    const auto found = all_.find(name);
    if (found == all_.end() || found->is_null()) return otherwise;
    if (!found->is_boolean()) wrong(name, "true or false");
    return found->get<bool>();
  }

  /// Whether there is such a member.
  bool has(const char* name) const { return all_.contains(name); }

  /// Says what was expected of a member. \throws std::runtime_error
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

  std::string path_;
  nlohmann::json all_;
};

}  // namespace models
