// SPDX-License-Identifier: MIT
/// \file
/// The colour and the mark of each system, the same in every plot: a hue for a family, lighter and
/// darker for its members. People who cannot tell some hues apart have the marks, and the labels
/// at the lines.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace bench {

enum class Mark { circle, square, triangle, diamond };

/// How a system is drawn, on light paper and on dark.
struct SystemStyle {
  std::string_view system;  ///< Names::op
  std::string_view light;
  std::string_view dark;
  Mark mark;
};

/// The hues are those of Okabe and Ito (2008), darker on light paper and lighter on dark where the
/// contrast would be below 3 to 1.
inline constexpr std::array kSystemStyles = {
    SystemStyle{"full", "#000000", "#ffffff", Mark::circle},
    SystemStyle{"blocked_eigen", "#6b6b6b", "#a8a8a8", Mark::square},
    SystemStyle{"naive_eigen", "#8a8a8a", "#868686", Mark::triangle},
    SystemStyle{"local", "#0072b2", "#4fb0ec", Mark::circle},
    SystemStyle{"longformer", "#2b4fa2", "#8fa8f5", Mark::square},
    SystemStyle{"bigbird", "#3a8fb7", "#7fd3f7", Mark::triangle},
    SystemStyle{"strided", "#c45100", "#ff8a3c", Mark::circle},
    SystemStyle{"fixed", "#9a3a00", "#ffb183", Mark::square},
    SystemStyle{"linear", "#00795a", "#2fcf9f", Mark::circle},
    SystemStyle{"performer", "#4a7a00", "#a4d64a", Mark::square},
    SystemStyle{"fmm", "#00594f", "#63d8c8", Mark::triangle},
    SystemStyle{"delta", "#2f8f2f", "#7fe07f", Mark::diamond},
    SystemStyle{"smart_bird", "#a8326f", "#f08fc0", Mark::circle},
    SystemStyle{"indexed", "#b5579a", "#d9a0cf", Mark::diamond},
    SystemStyle{"sinkhorn", "#6a3d9a", "#b99bec", Mark::square},
    SystemStyle{"reformer", "#7d2a8c", "#dba0ea", Mark::triangle},
    SystemStyle{"linformer", "#806000", "#e6c04a", Mark::circle},
    SystemStyle{"nystroem", "#8f7300", "#f2dc7c", Mark::square},
    SystemStyle{"luna", "#6b5a1e", "#cfb560", Mark::triangle},
    SystemStyle{"fsat", "#a11d21", "#ff8080", Mark::circle},
    SystemStyle{"fat", "#7a1a3a", "#ffa3b1", Mark::square},
    SystemStyle{"cross", "#b03a2e", "#f5a08f", Mark::triangle},
    SystemStyle{"mixer", "#8c3b3b", "#e0a0a0", Mark::diamond},
    SystemStyle{"synthesizer", "#4a4a8a", "#a9a9e8", Mark::diamond},
    // What is no system: kinds of heads, and policies of Smart Bird.
    SystemStyle{"heads", "#7c7c7c", "#9c9c9c", Mark::circle},
    SystemStyle{"squared_inverse_log", "#a8326f", "#f08fc0", Mark::circle},
    SystemStyle{"inverse_log", "#0072b2", "#4fb0ec", Mark::square},
    SystemStyle{"raw", "#c45100", "#ff8a3c", Mark::triangle},
    SystemStyle{"top_k", "#00795a", "#2fcf9f", Mark::diamond},
    SystemStyle{"random", "#6b6b6b", "#a8a8a8", Mark::square},
    SystemStyle{"own_best", "#000000", "#ffffff", Mark::circle},
};

/// The style of a system; grey for one that is not in the list.
inline constexpr SystemStyle style_of(std::string_view system) {
  const auto* const found = std::find_if(kSystemStyles.begin(), kSystemStyles.end(),
                                         [&](const SystemStyle& s) { return s.system == system; });
  if (found != kSystemStyles.end()) return *found;
  return {system, "#767676", "#9a9a9a", Mark::circle};
}

/// The system that a label begins with: "Smart Bird, K = 20" is of "smart_bird".
inline std::string system_of(std::string_view label) {
  std::string word;
  for (const char c : label.substr(0, label.find_first_of(" ,"))) {
    word += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  if (label.find("N x N") != label.npos) return "naive_eigen";
  if (word == "transformer") return "full";
  if (word == "fnet") return "mixer";
  return word == "smart" ? "smart_bird" : word;
}

}  // namespace bench
