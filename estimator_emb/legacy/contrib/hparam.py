"""`tf.contrib.training.HParams`: typed values by name, set by a text such as 'a=1,b=x'.

Source: tensorflow/contrib/training/python/training/hparam.py, TF 1.15, with the same messages.
"""

import json
import numbers
import re
from collections.abc import Callable
from typing import Any, NoReturn

_CLAUSE = re.compile(
    r"(?P<name>[a-zA-Z][\w.]*)(\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"((?P<value>[^,\[]*)|\[(?P<values>[^\]]*)\])($|,\s*)"
)


def parse_values(
    values: str, type_map: dict[str, type], ignore_unknown: bool = False
) -> dict[str, Any]:
    """Parses a text such as 'rate=0.1,layers=[8,4],names[1]=x'.

    Returns name -> a value, a list, or a dictionary from index to value. `type_map` has the type of
    each name's values or elements. A bool is 'true', 'True', 'false', 'False' or an integer. Raises
    ValueError if the text cannot be parsed, or a name is set twice or missing in `type_map`. With
    `ignore_unknown`, missing names are skipped instead.
    """
    results: dict[str, Any] = {}
    position = 0
    while position < len(values):
        match = _CLAUSE.match(values, position)
        if not match:
            raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
        position = match.end()
        name = match["name"]
        if name not in type_map:
            if ignore_unknown:
                continue
            raise ValueError(f"Unknown hyperparameter type for {name}")
        kind = type_map[name]
        parse: Callable[[str], Any] = _parse_bool if kind is bool else kind
        if match["value"] is not None:
            texts = [match["value"]]
        elif match["index"] is not None:
            raise ValueError("Assignment of a list to a list index.")
        else:
            texts = [text for text in re.split("[ ,]", match["values"]) if text]
        try:
            parsed = [parse(text) for text in texts]
        except ValueError:
            text = match["value"] if match["value"] is not None else match["values"]
            raise ValueError(
                f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}' in "
                f"{values}"
            ) from None
        if match["index"] is None:
            if name in results:
                _fail_twice(name, values)
            results[name] = parsed if match["value"] is None else parsed[0]
        else:
            elements = results.setdefault(name, {})
            if not isinstance(elements, dict):
                _fail_twice(name, values)
            index = int(match["index"])
            if index in elements:
                _fail_twice(f"{name}[{index}]", values)
            elements[index] = parsed[0]
    return results


def _parse_bool(text: str) -> bool:
    if text in ("true", "True"):
        return True
    return text not in ("false", "False") and bool(int(text))


def _fail_twice(name: str, values: str) -> NoReturn:
    raise ValueError(f"Multiple assignments to variable '{name}' in {values}")


def _cast(name: str, kind: type, value: Any) -> Any:
    if type(value) is kind or kind is type(None):
        return value
    texts = (str, bytes)
    if (
        (issubclass(kind, texts) and not isinstance(value, texts))
        or issubclass(kind, bool) != isinstance(value, bool)
        or (issubclass(kind, numbers.Integral) and not isinstance(value, numbers.Integral))
        or (issubclass(kind, numbers.Number) and not isinstance(value, numbers.Number))
    ):
        raise ValueError(f"Could not cast hparam '{name}' of type '{kind}' from value {value!r}")
    return kind(value)


class HParams:
    """Hyperparameters: values by name, as attributes, each of the type of its first value.

    A value is an int, float, bool, str or None, or a non-empty list of them. Names of this class's
    own attributes are not allowed.
    """

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any):
        self._hparam_types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        if hparam_def:
            raise NotImplementedError(
                "HParams: hparam_def is not supported, because its protocol buffer HParamDef left "
                "TensorFlow with tf.contrib. Give the hyperparameters by name, or parse_json."
            )
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter. Raises ValueError for a reserved name or an empty list."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Changes a hyperparameter. Raises KeyError if unknown, ValueError for another type."""
        kind, is_list = self._hparam_types[name]
        if isinstance(value, list) != is_list:
            raise ValueError(
                f"Must pass a list for multi-valued parameter: {name}."
                if is_list
                else f"Must not pass a list for single-valued parameter: {name}"
            )
        if is_list:
            setattr(self, name, [_cast(name, kind, element) for element in value])
        else:
            setattr(self, name, _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        if hasattr(self, name):
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values: str) -> "HParams":
        """Changes hyperparameters by a text (see `parse_values`), and returns this object."""
        kinds = {name: kind for name, (kind, _) in self._hparam_types.items()}
        return self.override_from_dict(parse_values(values, kinds))

    def override_from_dict(self, values_dict: dict[str, Any]) -> "HParams":
        """Changes hyperparameters, each as `set_hparam` does, and returns this object."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def set_from_map(self, values_map: dict[str, Any]) -> "HParams":
        return self.override_from_dict(values_map)

    def parse_json(self, values_json: str) -> "HParams":
        """Changes hyperparameters by a JSON object, and returns this object."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value, or `default` if unknown. Raises ValueError if their types differ."""
        if key not in self._hparam_types:
            return default
        if default is not None:
            kind, is_list = self._hparam_types[key]
            shown = f"list<{kind}>" if is_list else str(kind)
            message = f"Hparam '{key}' of type '{shown}' is incompatible with default={default}"
            if isinstance(default, list) != is_list:
                raise ValueError(message)
            try:
                for value in default if is_list else [default]:
                    _cast(key, kind, value)
            except ValueError as error:
                raise ValueError(f"{message}. {error}") from error
        return getattr(self, key)

    def set_model_structure(self, model_structure: Any) -> None:
        self._model_structure = model_structure

    def get_model_structure(self) -> Any:
        return self._model_structure

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self.values().items())})"
