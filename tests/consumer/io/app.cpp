// SPDX-License-Identifier: MIT
/// \file
/// A user's program with files: saves a layer, and loads it into another one.
#include <cstdio>
#include <fovea/io.hpp>
#include <fovea/layers/linear.hpp>

int main() {
  fovea::Initialiser initialiser(1);
  fovea::Linear<float> saved(3, 2, initialiser), loaded(3, 2, initialiser);
  const char* const file = "linear.safetensors";
  fovea::write_safetensors(file, fovea::parameters_of(saved));
  fovea::load_parameters(loaded, fovea::read_safetensors(file));
  std::remove(file);
  return saved.weight.value == loaded.weight.value ? 0 : 1;
}
