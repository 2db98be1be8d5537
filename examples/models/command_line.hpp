// SPDX-License-Identifier: MIT
/// \file
/// The command line of a program, and what it says when something is wrong.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fovea/core/config.hpp>
#include <map>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace models {

using fovea::Index;

/// `--flag value` and `--flag=value`, each flag at most once, and words between them. A value may
/// begin with `--`, unless it is a flag; behind `=` it may be any. What follows `--` is words.
/// Errors are std::runtime_error of one line.
class CommandLine {
 public:
  /// \param flags those that take a value \param takes_words whether there may be words
  CommandLine(std::span<char* const> arguments, std::span<const std::string_view> flags,
              bool takes_words) {
    bool is_word = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string_view argument = arguments[i];
      if (is_word || !argument.starts_with("--")) {
        if (!takes_words && argument != "-h") not_understood(argument);
        if (!is_word && argument == "-h") {
          help_ = true;
        } else {
          words_.emplace_back(argument);
        }
      } else if (argument == "--") {
        is_word = true;
      } else if (argument == "--help") {
        help_ = true;
      } else {
        const auto flag_of = [](std::string_view all) { return all.substr(0, all.find('=')); };
        const auto is_flag = [&](std::string_view all) {
          return all == "--" || all == "--help" ||
                 std::find(flags.begin(), flags.end(), flag_of(all)) != flags.end();
        };
        const std::string_view flag = flag_of(argument);
        if (!is_flag(argument)) not_understood(argument);
        std::string_view value;
        if (flag.size() < argument.size()) {
          value = argument.substr(flag.size() + 1);
        } else if (i + 1 < arguments.size() && !is_flag(arguments[i + 1])) {
          value = arguments[++i];
        } else {
          needs_value(flag);
        }
        if (!values_.emplace(flag, value).second) {
          throw std::runtime_error(std::string(flag) + " is given twice");
        }
      }
    }
  }

  /// Whether help is requested.
  bool help() const { return help_; }
  /// Whether a flag is given.
  bool has(std::string_view flag) const { return values_.contains(flag); }
  /// The words.
  const std::vector<std::string>& words() const { return words_; }

  /// The value of a flag, or this one if it is not given. An empty value is refused.
  std::string text(std::string_view flag, std::string_view otherwise = {}) const {
    if (has(flag) && values_.at(flag).empty()) needs_value(flag);
    return any_text(flag, otherwise);
  }

  /// The same, and the value may be empty.
  std::string any_text(std::string_view flag, std::string_view otherwise = {}) const {
    const auto found = values_.find(flag);
    return std::string(found == values_.end() ? otherwise : found->second);
  }

  /// A whole number from low to high.
  Index number(std::string_view flag, Index otherwise, Index low, Index high) const {
    return parsed(flag, otherwise, low, high,
                  "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }

  /// A finite number of at least `low`.
  double real(std::string_view flag, double otherwise, double low) const {
    char least[32];
    std::snprintf(least, sizeof least, "%g", low);
    const double value =
        parsed(flag, otherwise, low, 1e30, std::string("a number of at least ") + least);
    return value;
  }

 private:
  [[noreturn]] static void needs_value(std::string_view flag) {
    throw std::runtime_error(std::string(flag) + " needs a value");
  }

  [[noreturn]] static void not_understood(std::string_view argument) {
    throw std::runtime_error("'" + std::string(argument) + "' is not understood; see --help");
  }

  template <class Number>
  Number parsed(std::string_view flag, Number otherwise, Number low, Number high,
                const std::string& expected) const {
    const auto found = values_.find(flag);
    if (found == values_.end()) return otherwise;
    const std::string_view text = found->second;
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() ||
        !(value >= low && value <= high)) {
      throw std::runtime_error(std::string(flag) + ": '" + std::string(text) + "' is not " +
                               expected);
    }
    return value;
  }

  bool help_ = false;
  std::map<std::string_view, std::string_view> values_;
  std::vector<std::string> words_;
};

/// The parts of a list with commas between them; one empty part of an empty list.
inline std::vector<std::string> parts_of(std::string_view list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// The status of run(): 0, or 1 with a line on stderr.
template <class Run>
int exit_status(const char* program, const Run& run) {
  try {
    run();
    return 0;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: not enough memory\n", program);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
  }
  return 1;
}

}  // namespace models
