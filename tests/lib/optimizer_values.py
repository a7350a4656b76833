"""Arguments for the optimizers of both vocabularies, for tests of every optimizer."""

import inspect

import tensorflow as tf

REQUIRED = {
    "learning_rate": 0.125,
    "momentum": 0.75,
    "rho": 0.875,
    "epsilon": 0.0625,
    "tau": 0.1,
    "max_delta": 50.0,
    "outlier_threshold": 3.0,
    "weight_exponent": 1.0,
}
"""A value for every argument that is required by some optimizer."""


def by_name(cls):
    return cls.__name__


def arguments_of(cls):
    return dict(list(inspect.signature(cls.__init__).parameters.items())[1:])


def example_arguments(cls):
    """Returns the default arguments, with values for required arguments."""
    return {
        name: REQUIRED[name] if argument.default is argument.empty else argument.default
        for name, argument in arguments_of(cls).items()
    }


def create_slots(table, slot_names, slot_initializers):
    """A slot_variable_creation_fn. At module level, so that it can be pickled."""
    made, options = {}, {"dtype": table.dtype, "trainable": False, "use_resource": True}
    for name, initial in zip(slot_names, slot_initializers, strict=True):
        options |= {"shape": table.shape, "initializer": initial}
        made[name] = tf.compat.v1.get_variable(f"program/{table.op.name}/of_{name}", **options)
    return made


def other_value(name, value):
    """A valid value for the argument `name` that differs from `value`."""
    if name == "multiply_weight_decay_factor_by_learning_rate":
        return True
    if name == "slot_variable_creation_fn":
        return create_slots
    if name == "clipvalue":
        return (-0.5, 0.75)
    if value is None:
        return 0.25
    if isinstance(value, bool):
        return not value
    return value / 2 if value else 0.25


def changed_everywhere(cls):
    """Returns arguments that all differ from their defaults and are valid together."""
    changed = {name: other_value(name, value) for name, value in example_arguments(cls).items()}
    # With gradient limits or lazy_adam=False, use_gradient_accumulation=False is invalid.
    together = {"use_gradient_accumulation": True, "clip_weight_max": 0.5, "clip_gradient_max": 0.5}
    return {name: together.get(name, value) for name, value in changed.items()}
