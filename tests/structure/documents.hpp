// SPDX-License-Identifier: MIT
/// \file
/// Generates figures and code in documents: markers in a page name the file of a table or a number,
/// or the lines of an example. .github/CONTRIBUTING.md, "Documents", explains them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "structure/json.hpp"

namespace fovea_test {

/// Generates the figures and the code of a page. \throws std::runtime_error if a marker names
/// something that does not exist
class Figures {
 public:
  /// \param read gives the text of a file by its path from the root of the sources, or nothing
  explicit Figures(std::function<std::string(const std::string&)> read) : read_(std::move(read)) {}

  /// The page with every marked part generated. A pending part is kept if its file does not exist;
  /// otherwise its marker is no longer pending.
  std::string made_again(const std::string& page) {
    std::string made;
    std::size_t at = 0;
    while (true) {
      const std::size_t begin = page.find("<!-- ", at);
      if (begin == std::string::npos) return made + page.substr(at);
      const std::size_t close = page.find("-->", begin);
      if (close == std::string::npos) throw std::runtime_error("a comment that does not end");
      made += page.substr(at, begin - at);
      at = close + 3;
      std::string marker = page.substr(begin + 5, close - begin - 5);
      const bool is_pending = marker.starts_with("pending ");
      if (is_pending) marker.erase(0, 8);
      const bool is_code = fences(page, begin) % 2 != 0;
      const std::vector<std::string> said = words(marker);
      const std::string kind = said.size() < 2 ? "" : said[0];
      if (is_code || (kind != "table" && kind != "figure" && kind != "code")) {
        made += page.substr(begin, at - begin);
        continue;
      }
      const std::size_t end = page.find(kEnd, at);
      if (end == std::string::npos) throw std::runtime_error("no end of: " + marker);
      if (is_pending && read_(said[1]).empty()) {
        made += page.substr(begin, end - begin);
      } else {
        made += "<!-- " + marker + "-->";
        made += kind == "table" ? table(marker) : kind == "figure" ? figure(marker) : code(marker);
      }
      made += kEnd;
      at = end + std::string_view(kEnd).size();
    }
  }

 private:
  static constexpr const char* kEnd = "<!-- end -->";

  /// A row of a table: the lists with its figures, its name in them, and the other parts of its
  /// line.
  struct Row {
    std::vector<const Json*> lists;
    std::string key;
    std::string name;
    std::vector<std::string> cells;
  };

  /// The number of lines ``` before that position.
  static std::size_t fences(const std::string& page, std::size_t end) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = page.find("\n```", at)) < end; ++at) ++count;
    return count;
  }

  /// Keys and their required values.
  using Conditions = std::vector<std::array<std::string, 2>>;

  static std::vector<std::string> words(const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> all;
    for (std::string word; in >> word;) all.push_back(word);
    return all;
  }

  const Json& file(const std::string& path) {
    const auto known = files_.find(path);
    if (known != files_.end()) return known->second;
    const std::string text = read_(path);
    if (text.empty()) throw std::runtime_error("there is no " + path);
    return files_[path] = JsonReader::read(text);
  }

  const Json& value(const std::string& path, const std::string& name) {
    const Json* at = &file(path);
    std::istringstream parts(name);
    for (std::string part; std::getline(parts, part, '.');) {
      at = at->find(part);
      if (at == nullptr) throw std::runtime_error(path + " has no " + name);
    }
    return *at;
  }

  /// `figure FILE NAME [FORMAT]`
  std::string figure(const std::string& marker) {
    const std::vector<std::string> said = words(marker);
    if (said.size() < 3) throw std::runtime_error("figure FILE NAME [FORMAT], not " + marker);
    return written(value(said[1], said[2]), 1, said.size() > 3 ? said[3] : "");
  }

  /// `table FILE LIST KEY [FILE LIST]`, a line of titles, a line of places, and the names of rows,
  /// all of them if none is named.
  std::string table(const std::string& marker) {
    std::istringstream lines(marker);
    std::string first, titles, places;
    if (!std::getline(lines, first) || !std::getline(lines, titles) ||
        !std::getline(lines, places)) {
      throw std::runtime_error("a table without titles and places: " + marker);
    }
    const std::vector<std::string> said = words(first);
    if (said.size() != 4 && said.size() != 6) throw std::runtime_error("not a table: " + first);
    Row row{{&value(said[1], said[2])}, said[3], {}, {}};
    if (said.size() == 6) row.lists.push_back(&value(said[4], said[5]));
    std::string made = "\n" + titles + "\n|";
    for (auto bars = std::count(titles.begin(), titles.end(), '|'); bars > 1; --bars) {
      made += "---|";
    }
    std::vector<std::string> names;
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) names.push_back(line);
    }
    if (names.empty()) names = names_of(*row.lists[0], row.key);
    for (const std::string& line : names) {
      row.cells = cells(line);
      row.name = row.cells[0];
      made += "\n" + filled(places, row);
    }
    return made + "\n";
  }

  /// `code FILE`, and how the first line and the last statement begin, without indentation.
  std::string code(const std::string& marker) {
    std::istringstream said(marker);
    std::string first, begin, end;
    std::getline(std::getline(std::getline(said, first), begin), end);
    std::istringstream lines(read_(words(first)[1]));
    std::string made;
    std::size_t indent = 0;
    bool is_last = false;
    for (std::string line; !end.empty() && std::getline(lines, line);) {
      const std::size_t text = std::min(line.find_first_not_of(' '), line.size());
      if (made.empty() && line.compare(text, begin.size(), begin) != 0) continue;
      if (made.empty()) indent = text;
      made += "\n" + line.substr(std::min(indent, text));
      is_last = is_last || line.compare(text, end.size(), end) == 0;
      const bool is_whole = line.find(';') != std::string::npos || line == "}";
      if (is_last && is_whole) return "\n```cpp" + made + "\n```\n";
    }
    throw std::runtime_error("no such lines: " + marker);
  }

  static std::vector<std::string> names_of(const Json& list, const std::string& key) {
    std::vector<std::string> names;
    for (const Json& item : list.items) {
      const Json* name = item.find(key);
      if (name == nullptr) throw std::runtime_error("a row without " + key);
      if (std::find(names.begin(), names.end(), name->text) == names.end()) {
        names.push_back(name->text);
      }
    }
    return names;
  }

  /// The parts of a line between " | ".
  static std::vector<std::string> cells(const std::string& line) {
    std::vector<std::string> all;
    std::size_t at = 0;
    for (std::size_t bar = 0; (bar = line.find(" | ", at)) != std::string::npos; at = bar + 3) {
      all.push_back(line.substr(at, bar - at));
    }
    all.push_back(line.substr(at));
    return all;
  }

  static std::string filled(const std::string& places, const Row& row) {
    std::string made;
    std::size_t at = 0;
    for (std::size_t begin = 0; (begin = places.find('{', at)) != std::string::npos;) {
      const std::size_t end = places.find('}', begin);
      if (end == std::string::npos) throw std::runtime_error("no } in " + places);
      made += places.substr(at, begin - at) + place(places.substr(begin + 1, end - begin - 1), row);
      at = end + 1;
    }
    return made + places.substr(at);
  }

  /// `TERM[*TERM][/TERM] [KEY=VALUE ...] [FORMAT]`. A TERM is a number, the name of a figure of
  /// this row, `$2` for the second part of the row's line, or `$2:NAME` for a figure of the row of
  /// that name. A NAME with `?` may be missing.
  static std::string place(const std::string& text, const Row& row) {
    const std::vector<std::string> said = words(text);
    if (said.empty()) throw std::runtime_error("an empty place");
    std::string format;
    Conditions where;
    for (std::size_t i = 1; i < said.size(); ++i) {
      const std::size_t equals = said[i].find('=');
      if (equals == std::string::npos) {
        format = said[i];
      } else {
        where.push_back({said[i].substr(0, equals), said[i].substr(equals + 1)});
      }
    }
    std::size_t at = said[0].find_first_of("*/");
    Json value = term(said[0].substr(0, at), row, where);
    double times = 1;
    for (; at != std::string::npos; at = said[0].find_first_of("*/", at + 1)) {
      const std::size_t next = said[0].find_first_of("*/", at + 1);
      const Json factor = term(said[0].substr(at + 1, next - at - 1), row, where);
      times = said[0][at] == '*' ? times * number(factor) : times / number(factor);
    }
    return written(value, times, format);
  }

  static Json term(const std::string& said, const Row& row, Conditions where) {
    if (said.empty()) throw std::runtime_error("a place without a name");
    if (said.find_first_not_of("0123456789.") == std::string::npos) return {Json::Kind::word, said};
    std::string name = said;
    std::string of_row = row.name;
    if (name[0] == '$') {
      const std::size_t colon = name.find(':');
      of_row = cell(name.substr(0, colon), row);
      if (colon == std::string::npos) return {Json::Kind::string, of_row};
      name.erase(0, colon + 1);
    }
    const bool may_lack = name.back() == '?';
    if (may_lack) name.pop_back();
    where.push_back({row.key, of_row});
    const Json* found = field(row.lists, where, name);
    const bool is_missing = found == nullptr || found->text == "null";
    if (is_missing && may_lack) return {Json::Kind::missing};
    if (found == nullptr) throw std::runtime_error("no " + said + " of " + of_row);
    return *found;
  }

  static std::string cell(const std::string& name, const Row& row) {
    const std::size_t at = std::stoul(name.substr(1)) - 1;
    if (at >= row.cells.size()) throw std::runtime_error("no " + name + " of " + row.name);
    return row.cells[at];
  }

  static double number(const Json& value) {
    char* end = nullptr;
    const double x = std::strtod(value.text.c_str(), &end);
    if (value.text.empty() || *end != '\0') throw std::runtime_error(value.text + " is no number");
    return x;
  }

  static const Json* field(const std::vector<const Json*>& lists, const Conditions& where,
                           const std::string& name) {
    for (const Json* list : lists) {
      for (const Json& item : list->items) {
        const bool fits = std::all_of(where.begin(), where.end(), [&](const auto& condition) {
          const Json* value = item.find(condition[0]);
          return value != nullptr && value->text == condition[1];
        });
        const Json* found = fits ? item.find(name) : nullptr;
        if (found != nullptr) return found;
      }
    }
    return nullptr;
  }

  /// FORMAT `.2`: the number of decimals; `3`: of digits; none: unchanged, like strings. `mean.2`:
  /// the mean of a list. `day`: the day of a date.
  static std::string written(const Json& value, double times, const std::string& format) {
    if (value.kind == Json::Kind::missing) return "";
    if (value.kind == Json::Kind::object) throw std::runtime_error("an object is no figure");
    if (format == "day") return value.text.substr(0, 10);
    if (format.starts_with("mean")) {
      double sum = 0;
      for (const Json& item : value.items) sum += number(item);
      return rounded(sum * times / static_cast<double>(value.items.size()), format.substr(4));
    }
    if (value.kind == Json::Kind::array) {
      std::string made;
      for (const Json& item : value.items) {
        made += (made.empty() ? "" : ", ") + written(item, times, format);
      }
      return made;
    }
    const bool as_it_is = format.empty() || (value.kind == Json::Kind::string && times == 1);
    return as_it_is ? value.text : rounded(number(value) * times, format);
  }

  static std::string rounded(double x, const std::string& format) {
    const bool is_decimals = format.starts_with('.');
    int decimals = std::stoi(format.substr(is_decimals ? 1 : 0));
    if (!is_decimals && x != 0) {
      decimals = std::max(decimals - 1 - static_cast<int>(std::floor(std::log10(std::abs(x)))), 0);
    }
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", decimals, x);
    return text.data();
  }

  std::function<std::string(const std::string&)> read_;
  std::map<std::string, Json> files_;
};

}  // namespace fovea_test
