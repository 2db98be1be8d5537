// SPDX-License-Identifier: MIT
/// \file
/// The command line of fovea_scale.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "bench/io/compare_arguments.hpp"
#include "bench/scale/model.hpp"

namespace bench {

inline constexpr std::string_view kScaleHelp =
    R"(fovea_scale: passes over a sequence that is sharded over ranks, beside one process.
Start it with mpirun -np R fovea_scale. Each rank computes with one thread; D = 64, float32.

usage: fovea_scale [options]
  --rows N         rows of the sequence; with --weak, of each rank   (16384)
  --weak           weak scaling: the sequence grows with the ranks
  --heads H        heads   (1)
  --operator NAME  only the operators whose names begin with this; it may be given again. all: all
                   of them, also those that take long: the Synthesizers (the random one has N x N
                   numbers), FAT, and a block of an encoder with full attention
  --backward       backward passes instead of forward ones
  --repeat N       calls of each kind, in turns; medians are shown   (7)
  --memory         instead of times, the memory of a rank at its most
  --tokens N       rows of the sequence that the model is drawn out to   (100000000)
  --network B,L    gigabytes a second and microseconds of the network that it is drawn out for
                   (12.5,2)
  --plots DIR      directory of the model's plots: scale_time_causal.svg, scale_bytes_causal.svg and
                   the same with not_causal, of the main operators, and of each family that has
                   others scale_time_FAMILY_causal.svg and so on
  --json FILE      write everything there, too
  --draw FILE      nothing is measured: the plots of the JSON of an earlier run, in --plots (out)
  --help           this text

Columns: `one` is the operator in one process, rank 0 alone, over the same sequence, and `alone`
the same over a single rank; `ranks` is from the first rank's begin to the last one's end; `sent`
and `waited` are of the rank with most, and `in model` is what the model says of `sent`: the same
number, or, marked ~, the mean where the keys that are chosen lie evenly (BigBird, Smart Bird,
FSAT, indexed).

The model: time = computation + messages, one after the other, although the library lets dense
passes compute while messages are under way. Computation is `one`, which grows with the pairs of
the pattern, and what `alone` takes longer, which grows with the rows that a rank copies; both are
over as many ranks as there are cores. A causal far field is a chain of states, which H heads go
through one after the other, and attention that is computed by heads keeps as many ranks busy as
there are heads. In the backward pass of softmax a pair of rows of two ranks takes 7/5 of the work
of one process, since both compute logits and gradients of weights: on R ranks these are 1 - 1/R
of all pairs, but for a window. Messages are the bytes of the rank that sends most over the
bandwidth, and a latency for each message. Bandwidth and latency are measured between rank 0 and
rank 1 first, for the columns; for the sequence of --tokens on 1 to 4096 ranks, of which each has
a core, they are those of --network. Bytes come from the layout of the rows and the reach of the
pattern in closed form: 10^8 rows are not enumerated. More ranks are said to help until less than
half of each is of use (an efficiency below 0.5).

--memory: a forward pass with no process beside it, or a backward pass after a forward one;
resident memory of a rank at its most during the call, beyond what it had before, which is its own
rows of all tensors (Linux alone).
)";

/// What is asked for.
struct ScaleArguments {
  Index rows = 16384;
  Index heads = 1;
  Index tokens = 100'000'000;
  int repeat = 7;
  bool weak = false;
  bool backward = false;
  bool memory = false;
  bool help = false;
  Network network = {2e-6, 12.5e9};
  std::vector<std::string> names;  ///< of operators, their begins; none: all
  std::string json;
  std::string plots;
  std::string drawn_file;  ///< the JSON of a run to draw again; empty: none

  /// Whether an operator is requested.
  bool takes(const System& system) const {
    if (backward && !system.has_backward()) return false;
    if (names.empty()) return system.look.taken != Taken::if_asked;
    return std::any_of(names.begin(), names.end(), [&](const std::string& begin) {
      return begin == "all" || system.look.name.starts_with(begin);
    });
  }
};

namespace detail {

/// \throws ArgumentError unless it is a whole number from 1 to 10^12
inline Index positive_number(std::string_view flag, const char* text) {
  char* end = nullptr;
  const double x = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(x >= 1 && x <= 1e12) ||
      x != static_cast<double>(static_cast<Index>(x))) {
    throw ArgumentError(std::string(flag) + ": '" + text + "' is no whole number from 1 on");
  }
  return static_cast<Index>(x);
}

/// "12.5,2". \throws ArgumentError
inline Network network_of(const char* text) {
  double gigabytes = 0;
  double microseconds = 0;
  char rest = 0;
  if (std::sscanf(text, "%lf,%lf%c", &gigabytes, &microseconds, &rest) != 2 || !(gigabytes > 0) ||
      !(microseconds >= 0)) {
    throw ArgumentError("--network: '" + std::string(text) + "' is not two numbers");
  }
  return {microseconds * 1e-6, gigabytes * 1e9};
}

/// Whether the flag is one with a value, which is then taken. \throws ArgumentError
inline bool take_value(ScaleArguments& parsed, std::string_view flag, const char* value) {
  if (flag == "--rows") {
    parsed.rows = positive_number(flag, value);
  } else if (flag == "--heads") {
    parsed.heads = positive_number(flag, value);
  } else if (flag == "--tokens") {
    parsed.tokens = positive_number(flag, value);
  } else if (flag == "--repeat") {
    parsed.repeat = static_cast<int>(std::min<Index>(positive_number(flag, value), 1'000'000));
  } else if (flag == "--operator") {
    parsed.names.emplace_back(value);
  } else if (flag == "--json") {
    parsed.json = value;
  } else if (flag == "--plots") {
    parsed.plots = value;
  } else if (flag == "--draw") {
    parsed.drawn_file = value;
  } else if (flag == "--network") {
    parsed.network = network_of(value);
  } else {
    return false;
  }
  return true;
}

}  // namespace detail

/// \throws ArgumentError
inline ScaleArguments scale_arguments(int argc, char** argv) {
  ScaleArguments parsed;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--help") {
      parsed.help = true;
    } else if (flag == "--weak") {
      parsed.weak = true;
    } else if (flag == "--backward") {
      parsed.backward = true;
    } else if (flag == "--memory") {
      parsed.memory = true;
    } else if (i + 1 < argc && detail::take_value(parsed, flag, argv[i + 1])) {
      ++i;
    } else {
      throw ArgumentError("'" + std::string(flag) + "' is not understood; see --help");
    }
  }
  return parsed;
}

}  // namespace bench
