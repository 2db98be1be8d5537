// SPDX-License-Identifier: MIT
/// \file
/// Draws include/fovea/layers.svg: the directories of the library, and which includes which. Rows
/// and arrows follow from the includes; what a directory is for and its column are said here.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace fovea_test {

/// The picture of a library, from the texts of its headers by their path below include/.
class LayersPicture {
 public:
  /// \throws std::runtime_error if directories include each other, or one is not known here
  explicit LayersPicture(const std::map<std::string, std::string>& headers) {
    for (const auto& [path, text] : headers) {
      const std::string from = directory_of(path);
      if (from.empty()) continue;
      Layer& layer = layers_[from];
      if (const std::string inner = subdirectory_of(path); !inner.empty())
        layer.inner.insert(inner);
      std::istringstream in(text);
      for (std::string line; std::getline(in, line);) {
        const std::size_t quote = line.find_first_of("\"<");
        if (!line.starts_with("#") || line.find("include") >= quote) continue;
        const std::string to = directory_of(line.substr(quote + 1, line.size() - quote - 2));
        if (!to.empty() && to != from) layer.includes.insert(to);
      }
    }
    for (auto& [name, layer] : layers_) place(name, layer, 0);
  }

  /// The picture as SVG.
  std::string svg() {
    std::map<int, int> heights;
    for (const auto& [name, layer] : layers_) {
      int& height = heights[layer.row];
      height = std::max(height, 2 * kPad + kLine * static_cast<int>(lines(name, layer).size()));
    }
    int y = kMargin;
    for (auto row = heights.rbegin(); row != heights.rend(); ++row) {
      for (auto& [name, layer] : layers_) {
        if (layer.row == row->first) layer.y = y;
      }
      y += row->second + kGap;
    }
    const int height = y - kGap + kMargin;
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kWidth << ' ' << height
         << "\" width=\"" << kWidth << "\" height=\"" << height
         << "\" font-family=\"sans-serif\" font-size=\"13\">\n"
         << "<title>Directories of include/fovea and what they include</title>\n"
         << "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" "
            "markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#444\"/></marker>"
            "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    for (const auto& [name, layer] : layers_) draw_box(name, layer, heights.at(layer.row));
    for (const auto& [name, layer] : layers_) {
      for (const std::string& to : layer.includes) {
        if (!is_implied(layer, to)) draw_arrow(name, to, heights.at(layer.row));
      }
    }
    out_ << "</svg>\n";
    return out_.str();
  }

 private:
  static constexpr int kWidth = 800, kMargin = 20, kGap = 36, kPad = 12, kLine = 18;
  static constexpr int kColumns = 4, kCharacters = 24;  // of text in a column

  struct Layer {
    std::set<std::string> includes, inner;
    int row = -1, y = 0;  // row 0 includes nothing
  };

  /// The purpose of a directory, and the columns that its box covers.
  struct About {
    const char* text;
    int first, last;
  };

  static const About& about(const std::string& name) {
    static const std::map<std::string, About> all = {
        {"core", {"views, errors, executors, scratch memory, random numbers", 0, 3}},
        {"simd", {"vector type and its functions, instruction-set levels", 2, 3}},
        {"patterns", {"which keys each query sees: integers only", 0, 1}},
        {"kernels", {"arithmetic on pointers and strides, one block of rows", 2, 3}},
        {"attention", {"public operators and their options", 0, 2}},
        {"spectral", {"FFTW, Fourier cross and mixer", 3, 3}},
        {"layers", {"learned weights around operators", 0, 1}},
        {"distributed", {"one sequence across MPI processes", 2, 3}},
        {"io", {"files of tensors and parameters", 0, 1}}};
    const auto found = all.find(name);
    if (found == all.end()) throw std::runtime_error("layers_picture.hpp does not know " + name);
    return found->second;
  }

  /// The directory of a header; its umbrella header, such as fovea/core.hpp, counts as part of it.
  static std::string directory_of(const std::string& path) {
    if (!path.starts_with("fovea/")) return {};
    const std::string name = path.substr(6, path.find_first_of("/.", 6) - 6);
    return name == "fovea" || name == "compiled" ? std::string() : name;
  }
  static std::string subdirectory_of(const std::string& path) {
    const std::size_t inner = path.find('/', 6) + 1, end = path.find('/', inner);
    return inner == 0 || end == std::string::npos ? std::string() : path.substr(inner, end - inner);
  }

  void place(const std::string& name, Layer& layer, std::size_t depth) {
    if (depth > layers_.size()) throw std::runtime_error("a cycle of includes through " + name);
    int row = 0;
    for (const std::string& to : layer.includes) {
      const auto below = layers_.find(to);
      if (below == layers_.end()) throw std::runtime_error(name + " includes " + to);
      place(to, below->second, depth + 1);
      row = std::max(row, below->second.row + 1);
    }
    layer.row = row;
  }

  /// Whether what a layer includes is also included by something else that it includes.
  bool is_implied(const Layer& layer, const std::string& to) const {
    return std::any_of(layer.includes.begin(), layer.includes.end(), [&](const std::string& other) {
      const Layer& between = layers_.at(other);
      return other != to && (between.includes.count(to) != 0 || is_implied(between, to));
    });
  }

  static int left(const std::string& name) {
    return kMargin + about(name).first * (kWidth - 2 * kMargin + kMargin) / kColumns;
  }
  static int right(const std::string& name) {
    return (about(name).last + 1) * (kWidth - 2 * kMargin + kMargin) / kColumns;
  }

  /// The lines of a box: its name, what it is for, its subdirectories.
  static std::vector<std::string> lines(const std::string& name, const Layer& layer) {
    const auto columns = static_cast<std::size_t>(about(name).last - about(name).first + 1);
    std::vector<std::string> all = {name};
    const auto add = [&](const std::string& text) {
      std::istringstream words(text);
      std::string line;
      for (std::string word; words >> word;) {
        if (!line.empty() && line.size() + word.size() >= kCharacters * columns) {
          all.push_back(line);
          line.clear();
        }
        line += (line.empty() ? "" : " ") + word;
      }
      all.push_back(line);
    };
    add(about(name).text);
    if (name == "attention") {
      all.emplace_back("-");  // the call boundary
      all.emplace_back("engine: checks, forward and backward passes, decoders");
    }
    std::string inner;
    for (const std::string& directory : layer.inner) inner += directory + "/ ";
    if (!inner.empty()) add(inner);
    return all;
  }

  void draw_box(const std::string& name, const Layer& layer, int height) {
    const int x = left(name), width = right(name) - x;
    out_ << "<rect x=\"" << x << "\" y=\"" << layer.y << "\" width=\"" << width << "\" height=\""
         << height << "\" rx=\"6\" fill=\"#eef3fa\" stroke=\"#456\"/>\n";
    int y = layer.y + kPad + kLine - 4;
    for (const std::string& line : lines(name, layer)) {
      const bool is_name = line == name;
      if (line == "-") {
        out_ << "<path d=\"M" << x << ' ' << y - 4 << 'h' << width
             << "\" stroke=\"#a33\" stroke-dasharray=\"5 4\"/>\n<text x=\"" << x + width - 8
             << "\" y=\"" << y - 9
             << "\" text-anchor=\"end\" font-size=\"11\" fill=\"#a33\">call boundary</text>\n";
      } else {
        out_ << "<text x=\"" << x + kPad << "\" y=\"" << y << '"'
             << (is_name ? " font-weight=\"bold\"" : "")
             << (line.find('/') != std::string::npos
                     ? " font-family=\"monospace\" font-size=\"12\" fill=\"#456\""
                     : "")
             << '>' << line << "</text>\n";
      }
      y += kLine;
    }
  }

  void draw_arrow(const std::string& from, const std::string& to, int height) {
    const int first = std::max(left(from), left(to)), last = std::min(right(from), right(to));
    int x = (first + last) / 2, end = x;  // straight down where the boxes overlap
    if (first >= last) {
      const bool is_right = left(to) >= right(from);
      x = is_right ? right(from) - 2 * kPad : left(from) + 2 * kPad;
      end = is_right ? left(to) + 2 * kPad : right(to) - 2 * kPad;
    }
    out_ << "<path d=\"M" << x << ' ' << layers_.at(from).y + height << 'L' << end << ' '
         << layers_.at(to).y << "\" stroke=\"#444\" marker-end=\"url(#head)\"/>\n";
  }

  std::map<std::string, Layer> layers_;
  std::ostringstream out_;
};

}  // namespace fovea_test
