// SPDX-License-Identifier: MIT
/// \file
/// An attention operator that is chosen at run time: softmax over the keys of a pattern that a text
/// names.
#pragma once

#include <charconv>
#include <fovea/fovea.hpp>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cannot_decode.hpp"

namespace models {

using fovea::Index;

/// Causal attention whose pattern is any function of the head and the sizes of the sequence. It is
/// one type for all patterns, so the model is compiled once.
class ChosenAttention : public fovea::SoftmaxOperator<ChosenAttention> {
 public:
  using Pattern = std::function<fovea::AnyPattern(Index head, const fovea::SequenceShape& shape)>;
  using Period = std::function<Index(Index heads)>;

  /// The options that every softmax operator has.
  struct Options {
    std::optional<double> scale = {};
    fovea::CausalAlignment alignment = fovea::CausalAlignment::bottom_right;
    std::optional<double> soft_cap = {};
    fovea::Dropout dropout = {};
  };

  Options options;

  /// Full attention, causal.
  ChosenAttention()
      : ChosenAttention([](Index, const fovea::SequenceShape&) {
          return fovea::AnyPattern(fovea::Causal());
        }) {}
  /// \param period of the heads' patterns; by default all heads have the same
  explicit ChosenAttention(Pattern pattern, Period period = one_for_all)
      : pattern_(std::move(pattern)), period_(std::move(period)) {}
  /// The patterns of an operator.
  template <class Op>
  static ChosenAttention of(const Op& op) {
    return ChosenAttention(
        [op](Index head, const fovea::SequenceShape& shape) {
          return fovea::AnyPattern(op.pattern(head, shape));
        },
        [op](Index heads) { return op.pattern_period(heads); });
  }

  static constexpr const char* name() { return "ChosenAttention"; }
  fovea::AnyPattern pattern(Index head, const fovea::SequenceShape& shape) const {
    return pattern_(head, shape);
  }
  Index pattern_period(Index heads) const { return period_(heads); }
  void check_options() const {}

 private:
  static Index one_for_all(Index /*heads*/) { return 1; }

  Pattern pattern_;
  Period period_;
};

/// The value of the option --attention: a name, and named numbers, such as "window:256,sink:4".
class AttentionChoice {
 public:
  /// \throws std::invalid_argument if it is invalid
  explicit AttentionChoice(const std::string& text) : text_(text) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = (std::min)(text.find(',', begin), text.size());
      read(std::string_view(text).substr(begin, end - begin), begin == 0);
      begin = end + 1;
    }
  }

  /// Whether the keys are those that a sketch chooses.
  bool is_smart_bird() const { return name_ == "smart_bird"; }

  /// The number of keys that Smart Bird keeps.
  Index keys() {
    const Index keys = number("smart_bird", 64, 1);
    check_all_used();
    return keys;
  }

  /// The pattern, unless the keys are chosen. \throws std::invalid_argument
  ChosenAttention attention() {
    if (name_ == "full") {
      check_all_used();
      return ChosenAttention();
    }
    if (name_ == "window") {
      const Index window = number("window", 256, 1);
      const Index sink = number("sink", 4, 0);
      check_all_used();
      return ChosenAttention([=](Index, const fovea::SequenceShape&) {
        const fovea::Window seen{window - 1, 0};
        if (sink == 0) return fovea::AnyPattern(seen);
        return fovea::AnyPattern(
            fovea::WindowAndTokens(seen, fovea::GlobalTokens::first(sink, true)));
      });
    }
    if (name_ == "bigbird") {
      const fovea::BigBirdAttention op({.block = number("bigbird", 64, 1), .causal = true});
      check_all_used();
      return ChosenAttention::of(op);
    }
    return strided_or_fixed();
  }

 private:
  using Numbers = std::map<std::string, Index, std::less<>>;

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument("--attention " + text_ + ": " + why);
  }

  void read(std::string_view part, bool is_first) {
    const std::size_t colon = (std::min)(part.find(':'), part.size());
    const std::string name(part.substr(0, colon));
    if (is_first) name_ = name;
    if (colon == part.size()) {
      if (!is_first) refuse("'" + name + "' has no number");
      return;
    }
    const std::string_view digits = part.substr(colon + 1);
    Index value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()) {
      refuse("'" + std::string(digits) + "' is no number");
    }
    if (!numbers_.emplace(name, value).second) refuse("'" + name + "' is given twice");
  }

  /// The number of a name, which must be from `least` to `most`.
  Index number(const std::string& name, Index otherwise, Index least,
               Index most = fovea::kFarPosition) {
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) return otherwise;
    const Index value = found->second;
    numbers_.erase(found);
    if (value < least || value > most) {
      refuse(name + " is " + std::to_string(value) + "; expected " + std::to_string(least) +
             " to " + std::to_string(most));
    }
    return value;
  }

  void check_all_used() const {
    if (!numbers_.empty()) refuse("'" + numbers_.begin()->first + "' is not a part of it");
  }

  ChosenAttention strided_or_fixed() {
    if (cannot_decode(name_)) refuse(kCannotDecode);
    if (name_ != "strided" && name_ != "fixed") {
      refuse(
          "expected full, window:W,sink:S, strided:STRIDE, fixed:STRIDE,summary:C, bigbird:BLOCK "
          "or "
          "smart_bird:KEYS");
    }
    const Index stride = number(name_, 128, 1);
    if (name_ == "strided") {
      check_all_used();
      const fovea::StridedAttention op(
          {.stride = stride, .heads = fovea::HeadAssignment::merged, .causal = true});
      return ChosenAttention::of(op);
    }
    const Index summary = number("summary", (std::min)(Index{8}, stride), 1, stride);
    check_all_used();
    const fovea::FixedAttention op({.stride = stride,
                                    .summary = summary,
                                    .heads = fovea::HeadAssignment::merged,
                                    .causal = true});
    return ChosenAttention::of(op);
  }

  std::string text_;
  std::string name_;
  Numbers numbers_;
};

}  // namespace models
