# SPDX-License-Identifier: MIT
"""Writes the node cases of ONNX's operator Attention, of the package onnx, as one text file.

usage: attention_cases.py FILE

A case is a line "case NAME", lines "attribute NAME NUMBER" and lines "tensor NAME TYPE RANK EXTENT
... NUMBER ...". Tensors are named as the operator's inputs and outputs. Numbers are exact.
"""
import sys
import warnings

import numpy as np
from onnx import defs, helper
from onnx.backend.test.case.node import collect_testcases


def tensors_of(names, formal, arrays):
    """The tensors that a node has, by the names of the operator's inputs or outputs."""
    arrays = iter(arrays)
    return [(formal[i].name, next(arrays)) for i, name in enumerate(names) if name]


def main():
    warnings.filterwarnings("ignore")  # some cases compute with infinities
    cases = [case for case in collect_testcases("Attention") if "_expanded" not in case.name]
    with open(sys.argv[1], "w", encoding="ascii") as file:
        for case in cases:
            node = case.model.graph.node[0]
            schema = defs.get_schema("Attention", case.model.opset_import[0].version)
            file.write(f"case {case.name}\n")
            for attribute in node.attribute:
                value = float(helper.get_attribute_value(attribute))
                file.write(f"attribute {attribute.name} {value!r}\n")
            inputs, outputs = case.data_sets[0]
            for name, array in (tensors_of(node.input, schema.inputs, inputs)
                                + tensors_of(node.output, schema.outputs, outputs)):
                array = np.asarray(array)
                numbers = " ".join(repr(float(x)) for x in array.ravel())
                extents = " ".join(str(n) for n in array.shape)
                file.write(f"tensor {name} {array.dtype} {array.ndim} {extents} {numbers}\n")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
