// SPDX-License-Identifier: MIT
/// \file
/// Reads bytes as a file of tensors, for the fuzzer and for the test that calls it with changed
/// files.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "examples/models/gguf.hpp"
#include "examples/models/tiny_llama.hpp"
#include "fovea/io.hpp"
#include "fovea/layers/adam.hpp"
#include "fovea/layers/linear.hpp"

namespace fovea_test {

/// Ends the program, as a fuzzer expects of what must not be.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "model_files: %s\n", what);
  std::abort();
}

/// A layer, and what its optimiser keeps, as a program has them.
struct SmallModel {
  fovea::Initialiser initialiser{1};
  fovea::Linear<float> layer{3, 2, initialiser};
  fovea::Adam<float> adam;
};

/// Reads and loads all tensors, whose data must be within these bytes.
inline void read_all(std::span<const std::byte> bytes, const fovea::TensorSet& set) {
  for (const auto& [name, tensor] : set.tensors) {
    require(tensor.bytes.empty() ||
                (tensor.bytes.data() >= bytes.data() &&
                 tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size()),
            "a tensor lies outside of its file");
    if (tensor.decode == nullptr) {
      require(fovea::stored_bytes(tensor.dtype, tensor.shape) == std::ssize(tensor.bytes),
              "a tensor has more or fewer bytes than its shape");
    }
    if (!fovea::is_converted(tensor.dtype)) continue;
    std::vector<double> numbers(static_cast<std::size_t>(tensor.size()));
    tensor.read(numbers.data());
    std::vector<float> floats(numbers.size());
    tensor.read(floats.data());
  }
  SmallModel model;
  const auto before = model.layer.weight.value;
  try {
    fovea::load_checkpoint(model.layer, model.adam, set);
  } catch (const std::runtime_error&) {
    require(model.layer.weight.value == before, "what is refused has changed a weight");
  }
}

/// Reads bytes as the kind of file that their first ones select.
/// \return whether they are a file; otherwise what is wrong was said in a sentence
inline bool read_model_file(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    if (text.starts_with("\x93NUMPY")) {
      read_all(bytes, {.tensors = {{"tensor", fovea::parse_npy(bytes, "x")}}});
    } else if (text.starts_with("GGUF")) {
      const std::string name = "x";
      read_all(bytes, models::GgufReader(bytes, name).read().tensors);
    } else {
      read_all(bytes, fovea::parse_safetensors(bytes, "x"));
    }
    return true;
  } catch (const std::runtime_error& error) {
    const std::string_view said = error.what();
    require(said.starts_with("x: ") && said.size() < 1000, "a refusal is no sentence on the file");
    return false;
  }
}

/// Small files of each kind, which changes begin with. \param path where they are written
inline std::vector<std::string> model_file_seeds(const std::string& path) {
  std::vector<std::string> all;
  const auto keep = [&] {
    std::ifstream file(path, std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  };
  SmallModel model;
  fovea::write_safetensors(path, fovea::checkpoint_of(model.layer, model.adam));
  keep();
  fovea::write_safetensors(path, fovea::parameters_of(model.layer, fovea::Dtype::bf16));
  keep();
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  for (const bool column_major : {false, true}) {
    fovea::write_npy(path, {.shape = {3, 2},
                            .bytes = std::as_bytes(std::span<const float>(numbers)),
                            .column_major = column_major});
    keep();
  }
  std::filesystem::remove(path);
  GgufBytes gguf;
  gguf.string("general.architecture", "llama");
  gguf.size("general.alignment", 32);
  gguf.strings("words", {"a", "bc"});
  gguf.integers("kinds", {1, 3});
  gguf.number("rate", 6, 0.5F);
  gguf.tensor("floats", {2, 3}, 0, std::string(24, '\1'));
  gguf.tensor("packed", {2, 32}, 3, std::string(40, '\2'));
  all.push_back(gguf.file());
  return all;
}

}  // namespace fovea_test
