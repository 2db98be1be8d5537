// SPDX-License-Identifier: MIT
/// \file
/// The command line of fovea_scale.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "bench/io/program.hpp"
#include "bench/scale/model.hpp"

namespace bench {

inline constexpr const char* kScaleFooter = R"(
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
rows of all tensors (Linux alone).)";

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

/// "12.5,2". \throws ArgumentError
inline Network network_of(const std::string& option, const std::string& text) {
  const std::vector<std::string> parts = program::parts_of(option, text);
  if (parts.size() != 2) throw ArgumentError(option + ": '" + text + "' is not two numbers");
  const double most = std::numeric_limits<double>::max();
  return {.latency = 1e-6 * program::number_of(option, parts[1], 0.0, most),
          .bandwidth = 1e9 * program::number_of(option, parts[0], 1e-9, most)};
}

}  // namespace detail

/// \param is_first whether this rank prints --help \throws ArgumentError
inline ScaleArguments scale_arguments(int argc, const char* const* argv, bool is_first) {
  constexpr Index most = 1'000'000'000'000;
  ScaleArguments parsed;
  CommandLine line(
      "fovea_scale",
      "passes over a sequence that is sharded over ranks, beside one process. Start it with mpirun "
      "-np R fovea_scale. Each rank computes with one thread; D = 64, float32.");
  line.add("--rows N", parsed.rows, 1, most, "rows of the sequence; with --weak, of each rank");
  line.add("--weak", parsed.weak, "weak scaling: the sequence grows with the ranks");
  line.add("--heads H", parsed.heads, 1, most, "heads");
  line.add_each(
      "--operator NAME", parsed.names,
      "only the operators whose names begin with this; it may be given again. all: all of "
      "them, also those that take long: the Synthesizers (the random one has N x N "
      "numbers), FAT, and a block of an encoder with full attention");
  line.add("--backward", parsed.backward, "backward passes instead of forward ones");
  line.add("--repeat N", parsed.repeat, 1, 1'000'000,
           "calls of each kind, in turns; medians are shown");
  line.add("--memory", parsed.memory, "instead of times, the memory of a rank at its most");
  line.add("--tokens N", parsed.tokens, 1, most,
           "rows of the sequence that the model is drawn out to");
  line.add_value("--network B,L", "12.5,2",
                 "gigabytes a second and microseconds of the network that it is drawn out for",
                 [&](const std::string& option, const std::string& text) {
                   parsed.network = detail::network_of(option, text);
                 });
  line.add("--plots DIR", parsed.plots,
           "directory of the model's plots: scale_time_causal.svg, scale_bytes_causal.svg and the "
           "same with not_causal, of the main operators, and of each family that has others "
           "scale_time_FAMILY_causal.svg and so on");
  line.add("--json FILE", parsed.json, "write everything there, too");
  line.add("--draw FILE", parsed.drawn_file,
           "nothing is measured: the plots of the JSON of an earlier run, in --plots (out)");
  line.footer(kScaleFooter);
  parsed.help = !line.parse(argc, argv, is_first);
  return parsed;
}

}  // namespace bench
