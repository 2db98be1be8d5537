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
Columns: `one` is the operator in one process (rank 0) over the same sequence, and `alone` the
distributed pass on a single rank; `ranks` is the time from the first rank's start to the last
one's end; `sent` and `waited` are the largest values of any rank. `in model` is what the model
predicts for `sent`: the same number or, marked ~, its mean for uniformly distributed keys (BigBird,
Smart Bird, FSAT, indexed).

The model: time = computation + messages, without overlap, although dense passes compute while
messages are in transit. Computation is `one`, which grows with the pairs of the pattern, and the
difference of `alone`, which grows with the rows that a rank copies; both are divided by the number
of ranks, at most that of the cores. A causal far field is a sequential scan of states, in which H
heads keep H ranks busy, and so does attention that is computed by heads. In the backward pass of
softmax a pair of rows of two ranks takes 7/5 of the work of one process, since both compute logits
and gradients of weights: on R ranks these are 1 - 1/R of all pairs, except for a window. Messages
take the bytes of the rank that sends most divided by the bandwidth, and a latency for each message.
For the columns, bandwidth and latency are measured between rank 0 and rank 1; for the sequence of
--tokens on 1 to 4096 ranks with a core each, they are those of --network. Bytes are computed in
closed form from the layout of the rows and the receptive field of the pattern. The output has the
number of ranks from which the efficiency is below 0.5.

--memory: the peak resident memory of a rank during a forward pass, or a backward pass after a
forward one, in addition to what it had before, which is its own rows of all tensors (Linux only).
No other process computes at the same time.)";

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
      "compares passes over a sequence that is sharded over ranks with one process. Start it with "
      "mpirun -np R fovea_scale. Each rank computes with one thread; D = 64, float32.");
  line.add("--rows N", parsed.rows, 1, most, "rows of the sequence; with --weak, of each rank");
  line.add("--weak", parsed.weak, "weak scaling: the sequence grows with the ranks");
  line.add("--heads H", parsed.heads, 1, most, "heads");
  line.add_each(
      "--operator NAME", parsed.names,
      "only the operators whose names begin with NAME; may be repeated. all: all operators, also "
      "those that take long: the Synthesizers (the random one has N x N numbers), FAT, and an "
      "encoder block with full attention");
  line.add("--backward", parsed.backward, "measure backward passes instead of forward ones");
  line.add("--repeat N", parsed.repeat, 1, 1'000'000,
           "calls of each kind, alternating; medians are shown");
  line.add("--memory", parsed.memory, "measure the peak memory of a rank instead of times");
  line.add("--tokens N", parsed.tokens, 1, most,
           "rows of the sequence to which the model extrapolates");
  line.add_value("--network B,L", "12.5,2",
                 "gigabytes per second and microseconds of the network of this extrapolation",
                 [&](const std::string& option, const std::string& text) {
                   parsed.network = detail::network_of(option, text);
                 });
  line.add(
      "--plots DIR", parsed.plots,
      "directory of the model's plots: scale_time_causal.svg, scale_bytes_causal.svg and the "
      "same with not_causal for the main operators, and scale_time_FAMILY_causal.svg and so on "
      "for the others of a family");
  line.add("--json FILE", parsed.json, "also write all results to this file");
  line.add("--draw FILE", parsed.drawn_file,
           "draw the plots of the JSON of an earlier run in --plots (out), without measuring");
  line.footer(kScaleFooter);
  parsed.help = !line.parse(argc, argv, is_first);
  return parsed;
}

}  // namespace bench
