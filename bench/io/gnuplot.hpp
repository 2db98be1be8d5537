// SPDX-License-Identifier: MIT
/// \file
/// What all plots share: the layout of a picture for gnuplot, in which the plot takes most of the
/// width and the key stands below it in columns; and the call of gnuplot.
#pragma once

#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/io/json_writer.hpp"
#include "fovea/io/output_file.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has it in no header

namespace bench {

namespace detail {

/// text in single quotes, in which gnuplot replaces nothing (in double quotes it runs `commands`).
inline std::string gnuplot_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

}  // namespace detail

/// A file format, and how many of its pixels are one of the layout.
struct PictureFormat {
  const char* extension;
  const char* terminal;  ///< without size and font
  const char* fonts;
  int scale;
  int font;  ///< its size
};

inline constexpr std::array<PictureFormat, 2> kPictureFormats = {{
    {".svg", "svg dynamic", "Helvetica,Arial,sans-serif", 1, 14},
    {".png", "pngcairo linewidth 2 pointscale 2", "Sans", 2, 22},
}};

/// Where things stand in a picture, in pixels.
class PictureLayout {
 public:
  static constexpr int kWidth = 960;
  static constexpr int kLeft = 112;   // ticks and label of the y axis
  static constexpr int kRight = 28;   // half of the last tick's label
  static constexpr int kTop = 84;     // title and subtitle
  static constexpr int kPlot = 400;   // height of the plot
  static constexpr int kBelow = 76;   // ticks and label of the x axis
  static constexpr int kKeyRow = 25;  // height of a row of the key

  /// \param key its entries, of which none is left out
  explicit PictureLayout(const std::vector<std::string>& key) {
    for (const std::string& entry : key) longest_ = std::max(longest_, entry.size());
    const auto count = std::max(1, static_cast<int>(key.size()));
    // The sample of the line, and letters of a wide font.
    const double least = 60 + 7.5 * static_cast<double>(longest_);
    const int most = std::max(1, static_cast<int>((kWidth - kLeft) / least));
    key_rows_ = (count + most - 1) / most;
    key_columns_ = (count + key_rows_ - 1) / key_rows_;
  }

  int key_rows() const { return key_rows_; }
  int key_columns() const { return key_columns_; }
  int height() const { return kTop + kPlot + kBelow + key_rows_ * kKeyRow + 16; }

  /// The terminal, the margins and the key.
  std::string commands(const PictureFormat& format) const {
    const auto margin = [](const char* side, const std::string& at) {
      return std::string("set ") + side + " at screen " + at + "\n";
    };
    // Gnuplot makes a column 60 and 9.8 for each letter wide; `width` takes or adds letters.
    const double column = static_cast<double>(kWidth - kLeft) / key_columns_;
    const double more_letters = (column - 60) / 9.8 - static_cast<double>(longest_);
    return std::string("set terminal ") + format.terminal + " size " +
           std::to_string(kWidth * format.scale) + "," + std::to_string(height() * format.scale) +
           " background rgb 'white' font '" + format.fonts + "," + std::to_string(format.font) +
           "'\n" + margin("lmargin", across(kLeft)) + margin("rmargin", across(kWidth - kRight)) +
           margin("tmargin", up(kTop)) + margin("bmargin", up(kTop + kPlot)) +
           "set key at screen " + across(kLeft) + ", screen " + up(kTop + kPlot + kBelow) +
           " left top vertical Left reverse noenhanced samplen 3 spacing 1.15 width " +
           json_number(more_letters) + " maxrows " + std::to_string(key_rows_) + "\n";
  }

  /// Title and subtitle above the left end of the plot.
  std::string titles(const PictureFormat& format, const std::string& title,
                     const std::string& subtitle) const {
    const auto label = [&](int number, const std::string& text, int y, int size,
                           const char* colour) {
      return "set label " + std::to_string(number) + " " + detail::gnuplot_quoted(text) +
             " at screen " + across(kLeft) + ", screen " + up(y) + " font '," +
             std::to_string(size * format.font / 14) + "' textcolor rgb '" + colour +
             "' noenhanced\n";
    };
    return label(1, title, 32, 18, "#000000") + label(2, subtitle, 58, 13, "#505050");
  }

 private:
  /// Fractions of the picture.
  static std::string across(int x) { return json_number(static_cast<double>(x) / kWidth); }
  std::string up(int y) const { return json_number(1 - static_cast<double>(y) / height()); }

  std::size_t longest_ = 1;  // letters of an entry of the key
  int key_rows_ = 1;
  int key_columns_ = 1;
};

/// Runs gnuplot on a script. Returns what went wrong, or nothing.
inline std::string run_gnuplot(const std::string& script) {
  std::string program = "gnuplot";
  std::string argument = script;
  char* const words[] = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  if (posix_spawnp(&child, "gnuplot", nullptr, nullptr, words, environ) != 0) {
    return "no plots: there is no gnuplot (apt install gnuplot-nox); then run: gnuplot " + script;
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return "no plots: gnuplot could not draw " + script;
  }
  return {};
}

/// Writes a script to a file and runs it. Complains on stderr; returns whether it drew.
inline bool draw(const std::string& file, const std::string& script) {
  fovea::write_file(file, script);
  const std::string problem = run_gnuplot(file);
  if (!problem.empty()) std::fprintf(stderr, "%s\n", problem.c_str());
  return problem.empty();
}

}  // namespace bench
