// SPDX-License-Identifier: MIT
/// \file
/// Reads JSON, as far as figures need it. Held by tests/structure/documents_test.cpp.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fovea_test {

/// A value of JSON. Numbers are kept as text.
struct Json {
  enum class Kind { word, string, array, object, missing };
  Kind kind = Kind::word;
  std::string text = {};               ///< of a string without its quotes, of a number or a word
  std::vector<std::string> keys = {};  ///< of an object, in the order of `items`
  std::vector<Json> items = {};        ///< of an array or object

  /// The member of that name, or the item of that index; nullptr if absent.
  const Json* find(const std::string& key) const {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (kind == Kind::object ? keys[i] == key : std::to_string(i) == key) return &items[i];
    }
    return nullptr;
  }
};

/// Reads JSON;   \throws std::runtime_error if it is invalid.
class JsonReader {
 public:
  static Json read(const std::string& text) {
    JsonReader reader(text);
    Json value = reader.value();
    if (reader.next() != '\0') reader.fail();
    return value;
  }

 private:
  explicit JsonReader(const std::string& text) : text_(text) {}

  [[noreturn]] void fail() const {
    throw std::runtime_error("no JSON at byte " + std::to_string(at_));
  }

  /// The next character that is no space; it is not taken.
  char next() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool takes(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }

  Json value() {
    if (takes('{')) return collection(Json::Kind::object, '}');
    if (takes('[')) return collection(Json::Kind::array, ']');
    if (next() == '"') return {Json::Kind::string, string()};
    const std::size_t end = std::min(text_.find_first_of(" \t\r\n,]}", at_), text_.size());
    if (end == at_) fail();
    Json word{Json::Kind::word, text_.substr(at_, end - at_)};
    at_ = end;
    return word;
  }

  Json collection(Json::Kind kind, char close) {
    Json all{kind};
    if (takes(close)) return all;
    do {
      if (kind == Json::Kind::object) {
        if (next() != '"') fail();
        all.keys.push_back(string());
        if (!takes(':')) fail();
      }
      all.items.push_back(value());
    } while (takes(','));
    if (!takes(close)) fail();
    return all;
  }

  /// Escapes other than \\, \" and \/ are kept: no figure has one.
  std::string string() {
    std::string all;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      const bool is_escape =
          text_[at_] == '\\' && at_ + 1 < text_.size() &&
          std::string_view("\\\"/").find(text_[at_ + 1]) != std::string_view::npos;
      all += text_[is_escape ? ++at_ : at_];
    }
    if (at_++ >= text_.size()) fail();
    return all;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace fovea_test
