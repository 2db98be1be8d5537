// SPDX-License-Identifier: MIT
/// \file
/// Places of names in plots. Test: tests/bench/io/svg_plot_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

namespace bench::detail {

using Point = std::pair<double, double>;  ///< in pixels, or in values

/// A rectangle in a picture.
struct Box {
  double left, top, right, bottom;
  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

inline double text_width(std::string_view text) { return 7.0 * static_cast<double>(text.size()); }

/// Small boxes along a straight line.
inline void add_boxes(std::vector<Box>& boxes, const Point& from, const Point& to) {
  for (double at = 0; at < 1; at += 1.0 / 64) {
    const double x = from.first * (1 - at) + to.first * at;
    const double y = from.second * (1 - at) + to.second * at;
    boxes.push_back({x - 1, y - 1, x + 1, y + 1});
  }
}

/// Possible positions of a label relative to its point, near ones first.
inline std::vector<Point> places_around(double width) {
  std::vector<Point> places = {{8, 0}, {-8 - width, 0}};
  for (int ring = 1; ring < 9; ++ring) {
    for (const double up : {-14.0 * ring, 14.0 * ring}) {
      for (const double left : {-width / 2, 6.0, -6 - width}) places.emplace_back(left, up);
    }
  }
  return places;
}

inline bool meets_any(const Box& box, const std::vector<Box>& others) {
  return std::ranges::any_of(others, [&](const Box& other) { return box.meets(other); });
}

/// Where the line from a point to its name ends; at the point if the name is next to it.
inline Point end_of_leader(const Point& from, const Box& name) {
  const double middle = (name.top + name.bottom) / 2;
  if (std::abs(middle - from.second) <= 20) return from;
  return {std::clamp(from.first, name.left, name.right),
          middle < from.second ? name.bottom : name.top};
}

}  // namespace bench::detail
