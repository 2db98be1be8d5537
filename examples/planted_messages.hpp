// SPDX-License-Identifier: MIT
/// \file
/// A task that needs far tokens, made by counter-based draws. The first half of a sequence has
/// messages, tokens that name an address and a value, among fillers; the second half has a row for
/// each address, and rows with a question must predict the value of their message. Only the message
/// determines its row, and no row is near its message.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fovea/core/philox.hpp>
#include <numeric>
#include <vector>

namespace planted {

using fovea::Index;

struct Batch {
  std::vector<Index> tokens;   ///< [B L]
  std::vector<Index> answers;  ///< [B L]: the value, -1 without a question
};

struct Messages {
  Index length = 128;
  Index addresses = 16;
  Index values = 8;
  Index messages = 8;  ///< of a sequence, each for another address
  Index copies = 2;    ///< of each message, at random places

  /// Messages by address and value, then filler, the mark at position 0, and question.
  Index vocabulary() const { return addresses * values + 3; }
  Index filler() const { return addresses * values; }
  Index mark() const { return filler() + 1; }
  Index question() const { return filler() + 2; }

  /// The row that an address is planted at.
  Index row_of(Index address) const { return length / 2 + address * (length / 2) / addresses; }

  Batch draw(Index batch, std::uint64_t seed) const {
    Batch made{std::vector<Index>(static_cast<std::size_t>(batch * length), filler()),
               std::vector<Index>(static_cast<std::size_t>(batch * length), -1)};
    for (Index b = 0; b < batch; ++b) {
      const std::vector<Index> chosen = shuffled(addresses, seed, b, 0);
      const std::vector<Index> places = shuffled(length / 2 - 2, seed, b, 1);
      const auto at = [&](Index i) { return static_cast<std::size_t>(b * length + i); };
      made.tokens[at(0)] = mark();
      for (Index i = 0; i < messages; ++i) {
        const Index address = chosen[static_cast<std::size_t>(i)];
        const Index value = below(values, seed, b, 2, i);
        for (Index copy = 0; copy < copies; ++copy) {
          const auto place = static_cast<std::size_t>(copy * messages + i);
          made.tokens[at(1 + places[place])] = address * values + value;
        }
        made.tokens[at(row_of(address))] = question();
        made.answers[at(row_of(address))] = value;
      }
    }
    return made;
  }

 private:
  static Index below(Index n, std::uint64_t seed, Index b, Index stream, Index i) {
    const double draw = fovea::uniform_draw<double>(seed, b, stream, i, 0);
    return static_cast<Index>(draw * static_cast<double>(n));
  }

  static std::vector<Index> shuffled(Index n, std::uint64_t seed, Index b, Index stream) {
    std::vector<Index> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), Index{0});
    for (Index i = n; i-- > 1;) {
      std::swap(order[static_cast<std::size_t>(i)],
                order[static_cast<std::size_t>(below(i + 1, seed, b, stream, i))]);
    }
    return order;
  }
};

}  // namespace planted
