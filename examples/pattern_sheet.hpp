// SPDX-License-Identifier: MIT
/// \file
/// Pictures of attention patterns as SVG: rows are queries, columns are keys, and a filled square
/// is a pair that is visible.
#pragma once

#include <algorithm>
#include <cstdio>
#include <fovea/patterns.hpp>
#include <fstream>
#include <functional>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

namespace drawing {

using fovea::Index;

/// Whether the query at position i sees key j, for a pattern or any other rule.
using Mask = std::function<bool(Index i, Index j)>;

/// The palette of Okabe and Ito, which is distinguishable with colour blindness.
inline constexpr const char *kBlue = "#0072B2", *kOrange = "#D55E00", *kGreen = "#009E73";

/// Elements that have their own colour.
struct Part {
  std::string name;  ///< in the legend; empty: not there
  std::string colour;
  Mask mask;
};

/// Texts are written to the SVG without escaping.
struct Picture {
  std::string title;
  std::string options;
  Mask allows;
  Index grid = 0;  ///< faint lines at its multiples; 0: none
  /// A visible pair has the colour of the first part whose mask contains it; otherwise it is blue.
  std::vector<Part> parts = {};
};

/// What one head of an operator sees in a sequence of n tokens.
template <class Op>
Mask mask_of(const Op& op, Index head, Index n) {
  const fovea::AnyPattern pattern(op.pattern(head, fovea::SequenceShape{n, n, 0}));
  return [pattern](Index i, Index j) { return pattern.allows(i, j); };
}

inline Index count_visible(const Mask& allows, Index n) {
  Index pairs = 0;
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) pairs += allows(i, j) ? 1 : 0;
  }
  return pairs;
}

namespace detail {

/// Sizes in units of the sheet.
inline constexpr Index kSquare = 3;
inline constexpr Index kMargin = 20;
inline constexpr Index kAbove = 20;  // title
inline constexpr Index kLine = 14;   // of options, below the title
inline constexpr Index kFont = 11;
inline constexpr Index kBelow = 20;  // density and names of the parts

/// An upper bound of the width of a text in the units of the sheet: that in DejaVu Sans, the widest
/// font that a viewer may use.
inline double width_of(const std::string& text) {
  double ems = 0;
  for (const char c : text) {
    const auto is_one_of = [c](const char* these) {
      return std::string(these).find(c) != std::string::npos;
    };
    ems += is_one_of(" ,.:;'ijlI|")    ? 0.34
           : is_one_of("frt()[]-/")    ? 0.42
           : is_one_of("mwMW=+%@&<>_") ? 1.0
           : 'A' <= c && c <= 'Z'      ? 0.79
                                       : 0.64;
  }
  return ems * kFont;
}

/// Breaks a text at spaces into lines that are no wider than a picture.
inline std::vector<std::string> lines_of(const std::string& text, Index n) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string& line = lines.back();
    const std::string longer = line.empty() ? word : line + " " + word;
    if (line.empty() || width_of(longer) <= static_cast<double>(n * kSquare)) {
      line = longer;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

/// [n n] the number of the part that colours each pair; the number of parts for a pair in no part;
/// -1 for an invisible pair.
inline std::vector<int> part_of_pairs(const Picture& picture, Index n) {
  std::vector<int> numbers;
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) {
      const auto meets = [&](const Part& part) { return part.mask(i, j); };
      const auto part = std::find_if(picture.parts.begin(), picture.parts.end(), meets);
      const auto number = static_cast<int>(part - picture.parts.begin());
      numbers.push_back(picture.allows(i, j) ? number : -1);
    }
  }
  return numbers;
}

/// The squares of a part as a path of rectangles: a run of squares in a row, and the rows below as
/// far as they have the same run.
inline std::string path_of_part(const std::vector<int>& numbers, int part, Index n) {
  const auto is_part = [&](Index i, Index j) {
    return 0 <= i && i < n && 0 <= j && j < n &&
           numbers[static_cast<std::size_t>(i * n + j)] == part;
  };
  const auto is_run = [&](Index i, Index begin, Index end) {
    for (Index j = begin; j < end; ++j) {
      if (!is_part(i, j)) return false;
    }
    return !is_part(i, begin - 1) && !is_part(i, end);
  };
  std::ostringstream path;
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0, end = 0; j < n; j = end) {
      end = j + 1;
      if (!is_part(i, j)) continue;
      while (is_part(i, end)) ++end;
      if (i > 0 && is_run(i - 1, j, end)) continue;
      Index below = i + 1;
      while (below < n && is_run(below, j, end)) ++below;
      path << "M" << j << " " << i << "h" << end - j << "v" << below - i << "h" << j - end << "z";
    }
  }
  return path.str();
}

/// The diagonal, and lines at the multiples of the grid.
inline void draw_lines(std::ostream& svg, Index grid, Index n) {
  svg << "<path stroke=\"#DDDDDD\" d=\"M0 0L" << n << " " << n;
  for (Index at = grid; grid > 0 && at < n; at += grid) {
    svg << "M" << at << " 0v" << n << "M0 " << at << "h" << n;
  }
  svg << "\"/>\n";
}

/// "12.5 %", and the names of the parts in their colours.
inline void draw_legend(std::ostream& svg, const Picture& picture, Index above, Index n) {
  const double share = static_cast<double>(count_visible(picture.allows, n)) /
                       (static_cast<double>(n) * static_cast<double>(n));
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.1f %%", share * 100);
  svg << "<text y=\"" << above + n * kSquare + 14 << "\">" << percent;
  for (const Part& part : picture.parts) {
    if (part.name.empty()) continue;
    svg << "<tspan dx=\"8\" font-weight=\"bold\" fill=\"" << part.colour << "\">" << part.name
        << "</tspan>";
  }
  svg << "</text>\n";
}

/// \param above the text above the squares
inline void draw(std::ostream& svg, const Picture& picture, Index above, Index n) {
  svg << "<text y=\"12\" font-weight=\"bold\">" << picture.title << "</text>\n";
  Index y = 12;
  for (const std::string& line : lines_of(picture.options, n)) {
    svg << "<text y=\"" << (y += kLine) << "\">" << line << "</text>\n";
  }
  draw_legend(svg, picture, above, n);
  svg << "<g transform=\"translate(0 " << above << ") scale(" << kSquare
      << ")\" fill=\"none\" stroke-width=\".3\">\n";
  draw_lines(svg, picture.grid, n);
  const std::vector<int> numbers = part_of_pairs(picture, n);
  for (std::size_t p = 0; p <= picture.parts.size(); ++p) {
    const std::string path = path_of_part(numbers, static_cast<int>(p), n);
    const std::string colour = p < picture.parts.size() ? picture.parts[p].colour : kBlue;
    if (!path.empty()) svg << "<path fill=\"" << colour << "\" d=\"" << path << "\"/>\n";
  }
  svg << "<path stroke=\"#808080\" d=\"M0 0h" << n << "v" << n << "h" << -n << "z\"/>\n</g>\n";
}

}  // namespace detail

/// Pictures of sequences of n tokens in that many columns, each above its share of visible pairs.
/// The sheet has a background, so that it is visible on a dark page, too.
/// \param heading may be empty
inline std::string sheet(const std::string& heading, const std::vector<Picture>& pictures, Index n,
                         Index columns) {
  using detail::kMargin;
  const Index width = n * detail::kSquare + kMargin;
  std::size_t lines = 1;
  for (const Picture& picture : pictures) {
    lines = std::max(lines, detail::lines_of(picture.options, n).size());
  }
  const Index above = detail::kAbove + static_cast<Index>(lines) * detail::kLine;
  const Index height = above + n * detail::kSquare + detail::kBelow + kMargin;
  const Index count = static_cast<Index>(pictures.size());
  const Index top = kMargin + (heading.empty() ? 0 : 20);
  const Index whole_width = kMargin + columns * width;
  const Index whole_height = top + (count + columns - 1) / columns * height;
  std::ostringstream svg;
  svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << whole_width << "\" height=\""
      << whole_height << "\" viewBox=\"0 0 " << whole_width << " " << whole_height
      << "\" font-family=\"Helvetica,Arial,sans-serif\" font-size=\"" << detail::kFont << "\">\n"
      << "<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#FFFFFF\"/>\n"
      << "<g fill=\"#202020\">\n";
  if (!heading.empty()) {
    svg << "<text x=\"" << kMargin << "\" y=\"26\" font-size=\"13\">" << heading << "</text>\n";
  }
  for (Index p = 0; p < count; ++p) {
    svg << "<g transform=\"translate(" << kMargin + p % columns * width << " "
        << top + p / columns * height << ")\">\n";
    detail::draw(svg, pictures[static_cast<std::size_t>(p)], above, n);
    svg << "</g>\n";
  }
  svg << "</g>\n</svg>\n";
  return svg.str();
}

/// Whether the file could be written.
inline bool write(const std::string& file, const std::string& svg) {
  std::ofstream out(file, std::ios::binary);
  out << svg;
  out.close();
  return !out.fail();
}

}  // namespace drawing
