// SPDX-License-Identifier: MIT
/// \file
/// Includes files of tensors: .npy, safetensors, and parameters in them. It needs POSIX, and the
/// library nlohmann_json (the CMake target fovea::io), so fovea.hpp does not include this header.
#pragma once

#include "fovea/io/checkpoint.hpp"
#include "fovea/io/dtype.hpp"
#include "fovea/io/file_error.hpp"
#include "fovea/io/json_text.hpp"
#include "fovea/io/mapped_file.hpp"
#include "fovea/io/npy.hpp"
#include "fovea/io/output_file.hpp"
#include "fovea/io/parameters.hpp"
#include "fovea/io/safetensors.hpp"
#include "fovea/io/tensor_set.hpp"
