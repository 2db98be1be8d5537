// SPDX-License-Identifier: MIT
/// \file
/// The command line of a program, parsed by CLI11, and its exit status. CLI11's headers take
/// seconds to compile, so only command_line.cpp includes them.
#pragma once

#include <charconv>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace program {

/// An invalid command line. The message is one line.
struct ArgumentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws the message that the value of an option must be a number from low to high.
template <class Number>
[[noreturn]] void refuse_number(const std::string& option, const std::string& text, Number low,
                                Number high) {
  std::ostringstream expected;
  expected << (std::is_integral_v<Number> ? "whole number" : "number");
  if (high == std::numeric_limits<Number>::max()) {
    expected << " of at least " << low;
  } else {
    expected << " from " << low << " to " << high;
  }
  throw ArgumentError(option + ": '" + text + "' is not a " + expected.str());
}

/// \throws ArgumentError unless the value of an option is from low to high
template <class Number>
void check_range(const std::string& option, Number value, Number low, Number high) {
  if (value < low || value > high) refuse_number(option, std::to_string(value), low, high);
}

/// Parses a text as a number from low to high. \throws ArgumentError
template <class Number>
Number number_of(const std::string& option, const std::string& text, Number low, Number high) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc{} && end == text.data() + text.size();
  if (!is_number || !(number >= low && number <= high)) refuse_number(option, text, low, high);
  return number;
}

/// The parts of a text that are separated by commas. \throws ArgumentError if one of them is empty
std::vector<std::string> parts_of(const std::string& option, const std::string& text);

/// The options of a program: `--name VALUE` or `--name=VALUE`, each at most once. An option is
/// added by its name and that of its value, "--json FILE", with the variable that it sets. The
/// variable's value is the default, which --help shows. A name without dashes is a positional word.
class CommandLine {
 public:
  /// \param about what the program does: --help begins with it
  CommandLine(const std::string& program, const std::string& about);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  /// The title in --help of the options that are added from now on.
  void section(const std::string& title) { section_ = title; }

  /// An option without a value.
  void add(const std::string& name, bool& to, const std::string& help);
  /// A text, which is not empty.
  void add(const std::string& name, std::string& to, const std::string& help);
  /// A text.
  void add_any(const std::string& name, std::string& to, const std::string& help);
  /// A number from low to high. A default outside of that is not shown.
  template <class Number>
  void add(const std::string& name, Number& to, std::type_identity_t<Number> low,
           std::type_identity_t<Number> high, const std::string& help) {
    std::ostringstream shown;
    if (to >= low && to <= high) shown << to;
    add_value(name, shown.str(), help,
              [=, &to](const std::string& option, const std::string& text) {
                to = number_of(option, text, low, high);
              });
  }
  /// Texts separated by commas.
  void add_list(const std::string& name, std::vector<std::string>& to, const std::string& help);
  /// What `set` reads from the option's name and text. \param shown the default
  void add_value(const std::string& name, const std::string& shown, const std::string& help,
                 const std::function<void(const std::string&, const std::string&)>& set);
  /// Texts; the option is given once for each.
  void add_each(const std::string& name, std::vector<std::string>& to, const std::string& help);
  /// Positional arguments.
  void add_words(const std::string& name, std::vector<std::string>& to, const std::string& help);

  /// An option that excludes others, or that requires another, ...
  void excludes(const std::string& option, const std::vector<std::string>& others);
  void needs(const std::string& option, const std::vector<std::string>& others);
  /// The end of --help.
  void footer(const std::string& text);

  /// Sets the variables. Returns false if --help was given. \param prints whether help is printed
  /// \throws ArgumentError
  [[nodiscard]] bool parse(int argc, const char* const* argv, bool prints = true);
  /// Whether an option was given.
  bool has(const std::string& option) const;

 private:
  std::unique_ptr<CLI::App> app_;
  std::string section_;
};

/// The status of run(): 2 for an invalid command line and 1 for other errors, each of which is
/// printed as a line on stderr.
template <class Run>
int exit_status(const char* program, const Run& run) {
  const auto fail = [&](int status, const char* why) {
    std::fprintf(stderr, "%s: %s\n", program, why);
    return status;
  };
  try {
    return run();
  } catch (const ArgumentError& error) {
    return fail(2, error.what());
  } catch (const std::bad_alloc&) {
    return fail(1, "not enough memory");
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}

}  // namespace program
