// SPDX-License-Identifier: MIT
/// \file
/// The input of fovea_compare --advise: tensors of the requested sizes. Test:
/// tests/bench/io/compare_input_test.cpp.
#pragma once

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "bench/io/compare_input.hpp"
#include "bench/io/compare_sources.hpp"
#include "bench/io/human.hpp"
#include "bench/measure/machine.hpp"

namespace bench {

/// Refuses what does not fit: q, k, v and three outputs. \throws std::runtime_error
inline void check_memory(Index heads, Index rows, Index width) {
  const double bytes =
      6.0 * sizeof(float) * static_cast<double>(rows) * static_cast<double>(heads * width);
  if (bytes <= static_cast<double>(available_bytes())) return;
  throw std::runtime_error("q, k, v and three outputs take " + human_bytes(bytes) +
                           ", more than the free memory; use shorter --lengths");
}

/// The requested text, or the project's sources, embedded. \param what its description, written
/// \throws std::runtime_error
inline HeadTensors embedded_document(const CompareArguments& arguments,
                                     const std::filesystem::path& root, std::string& what) {
  const Document document = document_of(arguments, root);
  what = document.what;
  check_memory(arguments.heads, arguments.lengths.back(), arguments.width);
  return embed_text(document.bytes, arguments.lengths.back(), arguments.heads, arguments.width);
}

/// So many heads and rows, which begin again at the end of those of x. Heads share keys and values
/// as in x if their number is a multiple of the heads that share, and otherwise each has its own.
inline HeadTensors repeated(const HeadTensors& x, Index heads, Index rows) {
  const Index of_x = x.q_shape[1] / x.k_shape[1];
  const Index sharing = heads % of_x == 0 ? of_x : 1;
  const auto copy = [&](const std::vector<float>& from, const fovea::Shape& shape, Index count,
                        auto head_of) {
    const Index width = shape[3];
    std::vector<float> to;
    to.reserve(static_cast<std::size_t>(count * rows * width));
    for (Index h = 0; h < count; ++h) {
      const float* const head = from.data() + head_of(h) * shape[2] * width;
      for (Index n = 0; n < rows; n += shape[2]) {
        to.insert(to.end(), head, head + std::min(shape[2], rows - n) * width);
      }
    }
    return to;
  };
  const auto query_head = [&](Index h) { return h % x.q_shape[1]; };
  const auto key_head = [&](Index h) { return query_head(h * sharing) / of_x; };
  const Index key_heads = heads / sharing;
  return {{1, heads, rows, x.q_shape[3]},
          {1, key_heads, rows, x.k_shape[3]},
          {1, key_heads, rows, x.v_shape[3]},
          copy(x.q, x.q_shape, heads, query_head),
          copy(x.k, x.k_shape, key_heads, key_head),
          copy(x.v, x.v_shape, key_heads, key_head)};
}

/// Tensors of the requested lengths, heads and width: from files, repeated if they have fewer rows
/// or heads; from a text; or, for another width, from the project's sources. \param what their
/// description, written   \throws std::runtime_error
inline HeadTensors tensors_to_advise_on(const CompareArguments& asked,
                                        const std::filesystem::path& root, std::string& what) {
  if (!asked.text_file.empty()) return embedded_document(asked, root, what);
  CompareArguments whole = asked;
  whole.lengths_given = false;
  const HeadTensors x = tensors_of_directory(whole, root, what);
  const Index heads = asked.heads_given ? asked.heads : x.q_shape[1];
  if (asked.width_given && asked.width != x.q_shape[3]) {
    if (!asked.qkv_directory.empty()) {
      throw std::runtime_error(asked.qkv_directory + ": has width " + std::to_string(x.q_shape[3]) +
                               "; --width asks for " + std::to_string(asked.width));
    }
    CompareArguments drawn = asked;
    drawn.heads = heads;
    HeadTensors tensors = embedded_document(drawn, root, what);
    what += ", embedded with random tables, since the trained model's heads have width " +
            std::to_string(x.q_shape[3]);
    return tensors;
  }
  const Index rows = asked.lengths.back();
  check_memory(heads, rows, x.q_shape[3]);
  if (heads != x.q_shape[1]) {
    what += ", of which " + std::to_string(heads) + " heads" +
            (heads > x.q_shape[1] ? " (repeated)" : "");
  }
  if (rows > x.q_shape[2]) what += ", rows repeated to " + std::to_string(rows);
  return repeated(x, heads, rows);
}

}  // namespace bench
