"""An encoder whose matrices are kept and multiplied in bfloat16, from its own graph."""

import tensorflow as tf

from bert_flow_tf.errors import UserError

# Products of matrices, whose inputs are all rounded; their sums come out rounded too and go on in float32.
_PRODUCTS = ("BatchMatMul", "BatchMatMulV2", "Einsum", "MatMul")


class Bfloat16Encoder(tf.Module):
    """Callable from the dict of int32 [n, t] token tensors to what `function` gives of it, in mixed precision.

    The graph of `function` is taken apart: matrix products and the look-up of word embeddings work on bfloat16, with
    their weights kept so, which halves their size; layer norms, softmax, activations and pooling stay in float32. It
    works on any encoder's SavedModel and needs nothing of the code that built it.

    Args:
      function: from the dict of token tensors to embeddings float32 [n, D].
      inputs: names of the token tensors.

    Raises:
      UserError: there is no product of matrices in the graph.
    """

    def __init__(self, function, inputs):
        super().__init__(name="bfloat16_encoder")
        # The one way to a graph without functions, the encoder's own among them.
        from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2_as_graph

        specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in inputs}
        concrete = tf.function(lambda tokens: tf.identity(function(tokens), "embedding")).get_concrete_function(specs)
        frozen, graph_def = convert_variables_to_constants_v2_as_graph(concrete, aggressive_inlining=True)
        placeholders = [tensor.name for tensor in frozen.inputs]
        self._inputs = dict(zip(sorted(inputs), placeholders, strict=True))
        self._output = frozen.outputs[0].name
        self._width = frozen.outputs[0].shape[-1]
        self._graph_def, weights = _rounded(graph_def, self._output.split(":")[0])
        self.weights = [tf.Variable(value, trainable=False, name=name) for name, value in weights.items()]
        self._weight_names = list(weights)
        if not weights:
            raise UserError("--dtype=bfloat16: found an encoder without products of matrices, expected some")
        # One function, which all signatures of an export share.
        self._function = tf.function(self._import, input_signature=[specs])

    def __call__(self, tokens):
        return self._function(tokens)

    def _import(self, tokens):
        # An encoder may read fewer inputs than it takes.
        nodes = {node.name for node in self._graph_def.node}
        values = {
            placeholder: tokens[name]
            for name, placeholder in self._inputs.items()
            if placeholder.split(":")[0] in nodes
        }
        for name, weight in zip(self._weight_names, self.weights, strict=True):
            values[f"{name}:0"] = weight.read_value()
        (embedding,) = tf.graph_util.import_graph_def(
            self._graph_def, input_map=values, return_elements=[self._output], name="encoder"
        )
        return tf.ensure_shape(embedding, [None, self._width])


def _rounded(graph_def, output):
    """The part of the graph that `output` needs, products and look-ups in bfloat16; dict of placeholder -> weight."""
    nodes = {node.name: node for node in graph_def.node}
    changed, weights = tf.compat.v1.GraphDef(versions=graph_def.versions), {}

    def in_bfloat16(reference, consumer, index):
        """Name of the tensor `reference` in bfloat16: a weight's placeholder, or a cast made for this consumer."""
        name, matrix = _constant(nodes, reference)
        if matrix is not None:
            name = f"{name}/bfloat16"
            if name not in weights:
                weights[name] = tf.cast(matrix, tf.bfloat16).numpy()
                placeholder = changed.node.add(name=name, op="Placeholder")
                placeholder.attr["dtype"].type = tf.bfloat16.as_datatype_enum
            return name
        return _add_cast(changed, f"{consumer}/bfloat16_input_{index}", reference, tf.float32, tf.bfloat16)

    for node in graph_def.node:
        kind = "Tparams" if node.op == "GatherV2" else "T"
        is_lookup = node.op == "GatherV2" and _constant(nodes, node.input[0])[1] is not None
        is_float = node.attr[kind].type == tf.float32.as_datatype_enum if kind in node.attr else False
        new = changed.node.add()
        new.CopyFrom(node)
        # Both name nodes that are left out: to be placed beside, and to wait for. An encoder's inference has no effect
        # that anything would have to wait for.
        new.attr.pop("_class", None)
        operands = [reference for reference in node.input if not reference.startswith("^")]
        new.input[:] = operands
        if not is_float or not (is_lookup or node.op in _PRODUCTS):
            continue
        new.name = f"{node.name}/bfloat16"
        new.attr[kind].type = tf.bfloat16.as_datatype_enum
        for i in [0] if is_lookup else range(len(operands)):
            new.input[i] = in_bfloat16(operands[i], node.name, i)
        _add_cast(changed, node.name, new.name, tf.bfloat16, tf.float32)
    needed = _needed(changed, output)
    return needed, {name: value for name, value in weights.items() if any(name == node.name for node in needed.node)}


def _constant(nodes, reference):
    """Name and array of the constant of two axes or more that `reference` is, or is a reshape of; else (None, None)."""
    node, name, shapes = nodes[reference.split(":")[0]], None, []
    while node.op in ("Identity", "Reshape"):
        if node.op == "Reshape":
            shape = nodes[node.input[1].split(":")[0]]
            if shape.op != "Const":
                return None, None
            # A constant is another matrix in every shape.
            name = name or node.name
            shapes.append(tf.make_ndarray(shape.attr["value"].tensor))
        node = nodes[node.input[0].split(":")[0]]
    if node.op != "Const" or node.attr["dtype"].type != tf.float32.as_datatype_enum:
        return None, None
    array = tf.make_ndarray(node.attr["value"].tensor)
    for shape in reversed(shapes):
        array = array.reshape(shape)
    return (name or node.name, array) if array.ndim > 1 else (None, None)


def _add_cast(graph_def, name, reference, from_type, to_type):
    cast = graph_def.node.add(name=name, op="Cast", input=[reference])
    cast.attr["SrcT"].type = from_type.as_datatype_enum
    cast.attr["DstT"].type = to_type.as_datatype_enum
    return name


def _needed(graph_def, output):
    """The part of the graph that the node `output` depends on: without the pooler, or what held weights in float32."""
    nodes = {node.name: node for node in graph_def.node}
    found, left = set(), [output]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(reference.split(":")[0] for reference in nodes[name].input)
    part = tf.compat.v1.GraphDef(versions=graph_def.versions)
    part.node.extend(node for name, node in nodes.items() if name in found)
    return part
