// SPDX-License-Identifier: MIT
/// \file
/// Writes JSON (RFC 8259), indented, in the order of the calls.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

namespace detail {

/// Length of the well-formed UTF-8 sequence at the beginning of a text; 0 if there is none.
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned lead = byte(0);
  const std::size_t length = lead < 0x80                    ? 1
                             : lead >= 0xc2 && lead <= 0xdf ? 2
                             : lead >= 0xe0 && lead <= 0xef ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
  }
  // Overlong forms, surrogates, and characters beyond U+10FFFF.
  const unsigned second = byte(1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f)) return 0;
  if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) return 0;
  return length;
}

}  // namespace detail

/// text as a JSON string with its quotes; a byte that is no UTF-8 becomes U+FFFD.
inline std::string json_string(std::string_view text) {
  constexpr char hex[] = "0123456789abcdef";
  std::string out;
  out += '"';
  while (!text.empty()) {
    const std::size_t length = detail::utf8_length(text);
    const char c = text[0];
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) {
      out += "\\u00";
      out += hex[static_cast<unsigned char>(c) >> 4];
      out += hex[static_cast<unsigned char>(c) & 15];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
  return out;
}

/// The shortest decimal that reads back as x; null if x is no finite number.
inline std::string json_number(double x) {
  if (!std::isfinite(x)) return "null";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, x);
  return {digits, end.ptr};
}

/// Objects and arrays are begun and ended; commas and indentation come by themselves.
/// `json.begin_object(); json.member("n", 4096); json.begin_array("rows"); ... json.end();`
class JsonWriter {
 public:
  void begin_object() { begin('{', '}'); }
  void begin_array() { begin('[', ']'); }
  void begin_object(std::string_view key) { key_of(key), begin_object(); }
  void begin_array(std::string_view key) { key_of(key), begin_array(); }

  /// Ends the innermost object or array.
  void end() {
    const Level level = open_.back();
    open_.pop_back();
    if (!level.empty) line();
    text_ += level.close;
  }

  void value(std::string_view text) { item(json_string(text)); }
  void value(const char* text) { item(json_string(text)); }
  void value(const std::string& text) { item(json_string(text)); }
  void value(bool truth) { item(truth ? "true" : "false"); }
  void value(double number) { item(json_number(number)); }
  template <std::integral I>
  void value(I number) {
    item(std::to_string(number));
  }
  void null() { item("null"); }

  template <class V>
  void member(std::string_view key, const V& v) {
    key_of(key);
    value(v);
  }

  /// What was written. \pre everything that was begun has ended.
  const std::string& text() const { return text_; }

 private:
  struct Level {
    char close;
    bool empty = true;
  };

  void begin(char open, char close) {
    item(std::string_view(&open, 1));
    open_.push_back({close});
  }

  void key_of(std::string_view key) {
    item(json_string(key));
    text_ += ": ";
    after_key_ = true;
  }

  void item(std::string_view text) {
    if (!after_key_ && !open_.empty()) {
      if (!open_.back().empty) text_ += ',';
      open_.back().empty = false;
      line();
    }
    after_key_ = false;
    text_ += text;
  }

  void line() {
    text_ += '\n';
    text_.append(2 * open_.size(), ' ');
  }

  std::string text_;
  std::vector<Level> open_;
  bool after_key_ = false;
};

}  // namespace bench
