// SPDX-License-Identifier: MIT
/// \file
/// What a user's program of the files might be: a layer is saved, and another one loads it.
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
